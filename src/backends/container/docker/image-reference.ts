const label = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?";
const host = `${label}(?:\\.${label})*(?::[0-9]{1,5})?`;
const component = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
const digest = "sha256:[0-9a-f]{64}";
const reference = new RegExp(
  `^(?:${digest}|(?:${host}/)?${component}(?:/${component})*(?::${tag})?(?:@${digest})?)$`,
);

/**
 * Whether `text` is a reference as Docker writes them. Nothing else may become part of a request's path: the Docker daemon
 * redirects what it takes for an untidy path.
 */
export function isImageReference(text: string): boolean {
  return reference.test(text);
}
