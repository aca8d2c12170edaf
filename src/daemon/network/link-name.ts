import { createHash } from "node:crypto";

/** Longest name that the kernel gives a link. */
const longestName = 15;
/** Digits that the number of any address takes in base 36. */
const numberDigits = 5;

/** Names the host's ends of an instance's links: `<prefix><number>`. No instance's prefix begins another's. */
export class LinkNames {
  readonly prefix: string;

  constructor(instance: string) {
    const longest = longestName - numberDigits - 1;
    const short =
      instance.length <= longest && /^[a-z0-9-]+$/.test(instance)
        ? instance
        : `${instance.replaceAll(/[^a-z0-9]/g, "").slice(0, 3)}${createHash("sha256")
            .update(instance)
            .digest("hex")
            .slice(0, longest - 3)}`;
    // An underscore cannot stand in the part before it.
    this.prefix = `${short}_`;
  }

  nameOf(number: number): string {
    return `${this.prefix}${number.toString(36)}`;
  }

  /** The number of a link of this instance; undefined for all others. */
  numberOf(name: string): number | undefined {
    const digits = name.startsWith(this.prefix) ? name.slice(this.prefix.length) : "";
    return /^[1-9a-z][0-9a-z]{0,4}$/.test(digits) ? Number.parseInt(digits, 36) : undefined;
  }
}
