#!/bin/sh
# Minimise (x - 3)^2 by gradient descent: train.sh LR MOMENTUM STEPS. Each step prints a line with its loss, and saves its
# state before, so that a trial that is interrupted continues where it was. It saves right before it prints: a checkpoint
# belongs to a line if nothing was saved after it. With steps as short as these, not every line gets one.
set -eu
state="$PACELINE_CHECKPOINT_DIR/state"
[ -f "$state" ] || echo "0 0 0" > "$state"
read -r step x velocity < "$state"
while [ "$step" -lt "$3" ]; do
    step=$((step + 1))
    next=$(echo "$x $velocity" | awk -v lr="$1" -v m="$2" '{ v = m * $2 - lr * 2 * ($1 - 3); print $1 + v, v }')
    x=${next% *} velocity=${next#* }
    loss=$(echo "$x" | awk '{ print ($1 - 3) ^ 2 }')
    echo "$step $x $velocity" > "$state.new" && mv "$state.new" "$state"
    echo "step=$step loss=$loss"
done
