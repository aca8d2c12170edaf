import { DSecError } from "../protocol/errors.ts";
import { completionModel } from "./completion-model.ts";
import { bashScript, fishScript, zshScript } from "./completion-scripts.ts";
import { defineVerb } from "./verb.ts";

const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };

export const completion = defineVerb({
  description: "Completes verbs, flags, their values, sandbox ids and context names.",
  operands: "<shell>",
  examples: [
    "source <(dsec completion bash)",
    "dsec completion zsh > ~/.zfunc/_dsec",
    "dsec completion fish > ~/.config/fish/completions/dsec.fish",
  ],
  options: {},
  run: async (_context, _options, [shell = ""]) => {
    const known = Object.keys(scripts);
    if (shell !== "bash" && shell !== "zsh" && shell !== "fish")
      throw new DSecError("invalid_argument", `${JSON.stringify(shell)} is not one of ${known.join(", ")}`);
    return { type: "text", text: scripts[shell](await completionModel()) };
  },
});
