"""The parts of a specification that agents and slots get: what runs, with which resources, data and dependencies."""
