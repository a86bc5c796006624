// Steps of an application in JavaScript: each prints what it gave, or why it failed, and the next one runs all the same.

export const server = {
  host: "127.0.0.1",
  port: Number(process.env.PORT),
  user: "root",
  database: process.env.DATABASE,
};

const phases = { first: [], second: [] };

/** A step before the server is restarted. */
export const step = (name, work) => phases.first.push([name, work]);

/** A step after it. */
export const afterRestart = (name, work) => phases.second.push([name, work]);

/** Runs the steps of the phase that the command line names. */
export async function run(end = async () => {}) {
  for (const [name, work] of phases[process.argv[2]]) {
    try {
      console.log(JSON.stringify({ step: name, value: (await work()) ?? null }));
    } catch (error) {
      const reason = String(error?.sqlMessage ?? error?.message ?? error).split("\n")[0].slice(0, 240);
      console.log(JSON.stringify({ step: name, error: `${error?.name ?? "Error"}: ${reason}` }));
    }
  }
  await end();
}
