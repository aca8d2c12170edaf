import { dirname, join } from "node:path/posix";
import { type MemberExpression, parseSync, Visitor } from "oxc-parser";

export interface ModuleImport {
  /** `file`: the imported file, relative to the project; `package`: `node:fs`, `ws`, `@fastify/swagger`… */
  kind: "file" | "package";
  target: string;
  /** by import(), and so paid for only when it is reached; type imports count as static */
  lazy: boolean;
}

export interface ParsedModule {
  imports: ModuleImport[];
  exportsStar: boolean;
  callsProcessExit: boolean;
}

/**
 * What a TypeScript module imports and exports. A dynamic import that is not a string literal is an error: the
 * import rows could not judge it.
 *
 * @param path relative to the project
 */
export function parseModule(path: string, source: string): ParsedModule {
  const { module, program, errors } = parseSync(path, source);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message}`);

  const eager = [
    ...module.staticImports.map((statement) => statement.moduleRequest.value),
    ...module.staticExports.flatMap(({ entries }) =>
      entries.flatMap((entry) => entry.moduleRequest?.value ?? []),
    ),
  ];
  const lazy = module.dynamicImports.map(({ moduleRequest: { start, end } }) => {
    const literal = /^(["'`])([^"'`$]+)\1$/.exec(source.slice(start, end))?.[2];
    if (literal === undefined)
      throw new Error(`${path}: import(${source.slice(start, end)}) is not a literal`);
    return literal;
  });

  let callsProcessExit = false;
  let exportsStar = false;
  new Visitor({
    CallExpression({ callee }) {
      callsProcessExit ||= callee.type === "MemberExpression" && isProcessExit(callee);
    },
    ExportAllDeclaration() {
      exportsStar = true;
    },
  }).visit(program);

  return {
    imports: [
      ...eager.map((specifier) => resolveImport(path, specifier, false)),
      ...lazy.map((specifier) => resolveImport(path, specifier, true)),
    ],
    exportsStar,
    callsProcessExit,
  };
}

function isProcessExit({ object, property }: MemberExpression): boolean {
  return (
    object.type === "Identifier" &&
    object.name === "process" &&
    property.type === "Identifier" &&
    property.name === "exit"
  );
}

function resolveImport(importer: string, specifier: string, lazy: boolean): ModuleImport {
  if (specifier.startsWith(".")) return { kind: "file", target: join(dirname(importer), specifier), lazy };
  const parts = specifier.split("/");
  return { kind: "package", target: parts.slice(0, specifier.startsWith("@") ? 2 : 1).join("/"), lazy };
}
