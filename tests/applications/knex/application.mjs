// Knex: a schema by migrations, then queries as its builder writes them.

import knexOf from "knex";
import { afterRestart, run, server, step } from "./steps.mjs";

const knex = knexOf({ client: "mysql2", connection: server, pool: { min: 0, max: 4 } });

const migrations = [
  ["first", async (db) => {
    await db.schema.createTable("author", (t) => {
      t.increments("id");
      t.string("name", 60).notNullable().unique();
      t.json("about");
      t.timestamps(true, true);
    });
    await db.schema.createTable("book", (t) => {
      t.increments("id");
      t.integer("author_id").unsigned().notNullable().references("author.id").onDelete("CASCADE").onUpdate("CASCADE");
      t.string("title", 120).notNullable().index();
      t.decimal("price", 8, 2).defaultTo(0);
      t.enu("kind", ["novel", "poems"]).notNullable().defaultTo("novel");
      t.unique(["author_id", "title"]);
    });
  }],
  ["second", async (db) => {
    await db.schema.alterTable("book", (t) => {
      t.date("printed");
      t.string("title", 200).notNullable().alter();
      t.renameColumn("kind", "genre");
    });
    await db.schema.createTable("loan", (t) => {
      t.bigIncrements("id");
      t.integer("book_id").unsigned().references("id").inTable("book").onDelete("SET NULL");
      t.string("reader", 40);
      t.datetime("since", { precision: 3 });
    });
  }],
];
const migrationSource = {
  getMigrations: async () => migrations,
  getMigrationName: ([name]) => name,
  getMigration: async ([, up]) => ({ up, down: async () => {} }),
};

step("migrates", async () => (await knex.migrate.latest({ migrationSource }))[1]);
step("lists its columns", async () => Object.keys(await knex("book").columnInfo()).sort());
step("adds authors", async () => {
  const names = ["Ann", "Bob", "Çelik"];
  await knex("author").insert(names.map((name, n) => ({ name, about: JSON.stringify({ n }) })));
  return (await knex("author").count({ n: "*" }))[0].n;
});
step("gives the number of a row that it adds", async () => (await knex("author").insert({ name: "Dee" }))[0]);
step("refuses a second author of a name", async () =>
  knex("author").insert({ name: "ann" }).then(() => "made", (error) => error.errno));
step("adds books", async () => {
  const rows = [1, 1, 2, 3].map((author_id, n) => ({
    author_id, title: `book ${n}`, price: n + 0.5, genre: n % 2 ? "poems" : "novel", printed: `2024-0${n + 1}-01`,
  }));
  await knex.batchInsert("book", rows, 2);
  return (await knex("book").sum({ sum: "price" }))[0].sum;
});
step("refuses a book without its author", async () =>
  knex("book").insert({ author_id: 99, title: "x" }).then(() => "made", (error) => error.errno));
step("inserts or merges", async () => {
  await knex("book").insert({ author_id: 1, title: "book 0", price: 9 }).onConflict(["author_id", "title"]).merge(["price"]);
  await knex("book").insert({ author_id: 1, title: "book 0", price: 1 }).onConflict().ignore();
  return (await knex("book").where({ title: "book 0" }).first()).price;
});
step("joins and groups", async () =>
  knex("author as a").leftJoin("book as b", "b.author_id", "a.id").groupBy("a.id", "a.name").orderBy("a.name")
    .select("a.name").count({ n: "b.id" }).avg({ mean: "b.price" }));
step("uses subqueries and CTEs", async () =>
  knex.with("dear", knex("book").where("price", ">", 1)).from("dear")
    .whereIn("author_id", knex("author").select("id").where("name", "like", "%o%")).select("title").orderBy("title"));
step("ranks", async () => knex("book").select("title").rank("place", "price").orderBy("title"));
step("searches without case", async () => (await knex("author").whereILike("name", "%AN%")).map((row) => row.name));
step("finds by an equal name", async () => (await knex("author").where({ name: "BOB" })).length);
step("looks into JSON", async () => (await knex("author").whereJsonPath("about", "$.n", "=", 1)).map((row) => row.name));
step("unites", async () =>
  (await knex("author").select("name").union([knex("book").select("title")])).map((row) => row.name).sort());
step("rolls back", async () => {
  await knex.transaction(async (trx) => {
    await trx("book").delete();
    throw new Error("no");
  }).catch(() => {});
  return (await knex("book").count({ n: "*" }))[0].n;
});
step("locks rows", async () =>
  knex.transaction(async (trx) => {
    const row = await trx("book").where({ id: 1 }).forUpdate().first();
    return trx("book").where({ id: 1 }).update({ price: Number(row.price) + 1 });
  }));
step("lends", async () => {
  await knex("loan").insert([{ book_id: 1, reader: "r", since: "2024-01-02 03:04:05.678" }, { book_id: 2, reader: "s" }]);
  return (await knex("loan").max({ since: knex.raw("DATE_FORMAT(since, '%T.%f')") }))[0].since;
});
step("increments and decrements", async () => {
  await knex("book").where("price", "<", 4).increment("price", 2);
  return (await knex("book").sum({ sum: "price" }))[0].sum;
});
step("cascades a key", async () => {
  await knex("author").where({ id: 3 }).update({ id: 30 });
  return knex("book").where({ author_id: 30 }).pluck("title");
});
afterRestart("finds everything again", async () => [
  (await knex("author").count({ n: "*" }))[0].n, (await knex("book").count({ n: "*" }))[0].n,
]);
afterRestart("deletes with what refers to it", async () => {
  await knex("author").where({ id: 1 }).delete();
  return [(await knex("book").count({ n: "*" }))[0].n, (await knex("loan").whereNull("book_id").count({ n: "*" }))[0].n];
});
afterRestart("has nothing to migrate", async () => (await knex.migrate.latest({ migrationSource }))[1]);
afterRestart("drops a key and a column", async () => {
  await knex.schema.alterTable("loan", (t) => t.dropForeign("book_id"));
  await knex.schema.alterTable("loan", (t) => t.dropColumn("book_id"));
  return Object.keys(await knex("loan").columnInfo()).sort();
});

await run(() => knex.destroy());
