import { imageInvalid } from "./image-error.ts";
import { printable } from "./tar-header.ts";

/**
 * The path below the root that a member's name stands for: no slash at either end, no empty component, no dots; "" is the root.
 * An absolute name counts from the root, as under docker.
 *
 * @throws DSecError `image_invalid` for a name that leads out of the root
 */
export function memberPath(name: string): string {
  const parts: string[] = [];
  for (const part of name.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.pop() === undefined)
      throw imageInvalid(`a layer holds '${printable(name)}', which leads out of its root`);
  }
  return parts.join("/");
}

/** "" for what lies directly below the root. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

export function joinPath(parent: string, name: string): string {
  return parent === "" ? name : `${parent}/${name}`;
}
