// What `redocly lint` does by default, where each warning is an error. Its command has 200 packages more.
import { createConfig, formatProblems, getTotals, lint } from "@redocly/openapi-core";

// A form is answered with a redirect alone.
const config = await createConfig({ extends: ["recommended-strict"], rules: { "operation-2xx-response": "off" } });
for (const ref of process.argv.slice(2)) {
  const problems = await lint({ ref, config });
  formatProblems(problems, { totals: getTotals(problems) });
  if (problems.length > 0) process.exitCode = 1;
}
