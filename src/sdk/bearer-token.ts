/** Whether a request's header can carry `token`; a file of something else cannot be one. */
export function isToken(token: string): boolean {
  return /^[\x21-\x7e]{1,4096}$/.test(token);
}
