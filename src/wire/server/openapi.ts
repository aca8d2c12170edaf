import { z } from "zod";
import { Problem } from "../../protocol/problem.ts";
import { problemContentType } from "../../protocol/problem-codec.ts";
import { type RouteName, routes } from "../../protocol/routes.ts";
import { type Contract, contracts } from "./contracts.ts";

/**
 * The OpenAPI document of the given routes. Made by a second Fastify instance that never serves, so that running servers
 * neither load nor run the generator.
 */
export async function openApiDocument(names: readonly RouteName[], version: string): Promise<object> {
  const [{ default: fastify }, { default: swagger }, { jsonSchemaTransform }] = await Promise.all([
    import("fastify"),
    import("@fastify/swagger"),
    import("fastify-type-provider-zod"),
  ]);
  const app = fastify();
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => JSON.stringify);
  await app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: { title: "dsec", description: "Sandbox fleets", version },
      components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
      security: [{ token: [] }],
    },
    transform: jsonSchemaTransform,
  });
  for (const name of names) app.route({ ...describe(name), handler: () => undefined });
  await app.ready();
  const document = app.swagger();
  await app.close();
  return document;
}

function describe(name: RouteName) {
  const { method, path } = routes[name];
  const contract: Contract = contracts[name];
  const problem = { description: "problem", content: { [problemContentType]: { schema: Problem } } };
  return {
    method,
    url: path,
    schema: {
      operationId: name,
      summary: contract.summary,
      ...(contract.params ? { params: contract.params } : {}),
      ...(contract.query ? { querystring: contract.query } : {}),
      ...(contract.body ? { body: contract.body } : {}),
      ...(contract.upload ? { consumes: [contract.upload], body: contentOf(contract.upload) } : {}),
      ...(name === "version" ? { security: [] } : {}),
      response: { [contract.status]: answerOf(contract), default: problem },
    },
  };
}

function contentOf(type: string): object {
  return { content: { [type]: { schema: z.string().meta({ format: "binary" }) } } };
}

/** An answer without a body is described by the null type, which the generator knows as such. */
function answerOf({ answer, schema, summary, contentType = "" }: Contract): object {
  if (answer === "bytes") return { description: summary, ...contentOf(contentType) };
  if (answer === "text") return { description: summary, content: { "text/plain": { schema: z.string() } } };
  if (schema === undefined) return z.null().describe(summary);
  const type = answer === "ndjson" ? "application/x-ndjson" : "application/json";
  return { description: summary, content: { [type]: { schema } } };
}
