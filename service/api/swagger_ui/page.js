SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  // Otherwise it asks a validator on the internet about documents that are not on localhost.
  validatorUrl: null,
});
