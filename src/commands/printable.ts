/** One line of text as a terminal may have it: names, labels and messages come from users and out of sandboxes. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, escaped);
}

/** The same for JSON and YAML, in which the escape stands for the character: of these neither escapes them by itself. */
export function printableDocument(text: string): string {
  return text.replace(/[\u007f-\u009f]/g, escaped);
}

function escaped(control: string): string {
  return `\\u${control.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
