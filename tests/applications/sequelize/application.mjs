// Sequelize: models with every kind of association, made by sync(), then used through its finders.

import { DataTypes, Op, Sequelize } from "sequelize";
import { afterRestart, run, server, step } from "./steps.mjs";

const db = new Sequelize(server.database, server.user, null, {
  host: server.host, port: server.port, dialect: "mysql", logging: false,
});
const User = db.define("User", {
  name: { type: DataTypes.STRING(40), allowNull: false, unique: true },
  active: { type: DataTypes.BOOLEAN, defaultValue: true },
  settings: DataTypes.JSON,
});
const Post = db.define("Post", {
  title: { type: DataTypes.STRING, allowNull: false },
  body: DataTypes.TEXT("medium"),
  votes: { type: DataTypes.INTEGER.UNSIGNED, defaultValue: 0 },
  state: { type: DataTypes.ENUM("draft", "shown"), defaultValue: "draft" },
  day: DataTypes.DATEONLY,
}, { indexes: [{ fields: ["state", "votes"] }] });
const Tag = db.define("Tag", { word: { type: DataTypes.STRING(20), unique: true } }, { timestamps: false });
const Profile = db.define("Profile", { text: DataTypes.STRING }, { timestamps: false });
User.hasMany(Post, { foreignKey: { allowNull: false }, onDelete: "CASCADE" });
Post.belongsTo(User);
User.hasOne(Profile, { onDelete: "SET NULL" });
Profile.belongsTo(User);
Post.belongsToMany(Tag, { through: "PostTag", timestamps: false });
Tag.belongsToMany(Post, { through: "PostTag", timestamps: false });
Post.belongsTo(Post, { as: "parent" });

const titles = (rows) => rows.map((row) => row.title);

step("makes its tables", async () => {
  await db.sync();
  return (await db.getQueryInterface().showAllTables()).map((table) => table.tableName ?? table).sort();
});
step("makes them again", async () => (await db.sync(), true));
step("adds users", async () => {
  await User.bulkCreate(["Ann", "Bob", "Çelik"].map((name, n) => ({ name, settings: { n, of: ["x"] } })));
  return User.count();
});
step("refuses a second user of a name", async () =>
  User.create({ name: "ANN" }).then(() => "made", (error) => error.name));
step("adds posts with their tags", async () => {
  const ann = await User.findOne({ where: { name: "Ann" } });
  const post = await Post.create({
    title: "First", votes: 3, UserId: ann.id, day: "2024-02-29", Tags: [{ word: "old" }, { word: "new" }],
  }, { include: [Tag] });
  await Post.create({ title: "Second", votes: 5, state: "shown", UserId: ann.id, parentId: post.id });
  await Post.create({ title: "Third", UserId: 2 });
  return Post.count();
});
step("refuses a post without its user", async () =>
  Post.create({ title: "x", UserId: 99 }).then(() => "made", (error) => error.name));
step("finds with what belongs to it", async () => {
  const found = await User.findAll({ include: [{ model: Post, include: [Tag] }], order: ["id", [Post, "id"], [Post, Tag, "word"]] });
  return found.map((user) => [user.name, user.Posts.map((post) => [post.title, post.Tags.map((tag) => tag.word)])]);
});
step("finds and counts a page", async () => {
  const { count, rows } = await Post.findAndCountAll({ include: [Tag], distinct: true, limit: 2, order: [["votes", "DESC"]] });
  return [count, titles(rows)];
});
step("filters", async () =>
  titles(await Post.findAll({ where: { [Op.or]: [{ votes: { [Op.gt]: 4 } }, { title: { [Op.like]: "T%" } }] }, order: ["title"] })));
step("searches without case", async () => titles(await Post.findAll({ where: { title: { [Op.like]: "%FIRST%" } } })));
step("finds by an equal name", async () => (await User.findAll({ where: { name: "bob" } })).length);
step("looks into JSON", async () => (await User.findAll({ where: { settings: { n: 1 } } })).map((user) => user.name));
step("groups", async () =>
  Post.findAll({
    attributes: ["state", [db.fn("COUNT", db.col("id")), "n"], [db.fn("SUM", db.col("votes")), "sum"]],
    group: "state", order: ["state"], raw: true,
  }));
step("finds or creates", async () => [(await Tag.findOrCreate({ where: { word: "old" } }))[1], (await Tag.findOrCreate({ where: { word: "odd" } }))[1]]);
step("upserts", async () => (await User.upsert({ id: 2, name: "Bob", active: false }), (await User.findByPk(2)).active));
step("increments", async () => (await Post.increment({ votes: 2 }, { where: { state: "draft" } }), Post.sum("votes")));
step("rolls back", async () => {
  await db.transaction(async (transaction) => {
    await Post.destroy({ where: {}, transaction });
    throw new Error("no");
  }).catch(() => {});
  return Post.count();
});
step("locks a row", async () =>
  db.transaction(async (transaction) => (await Post.findByPk(1, { transaction, lock: transaction.LOCK.UPDATE })).title));
step("adds and changes columns", async () => {
  const tables = db.getQueryInterface();
  await tables.addColumn("Posts", "length", { type: DataTypes.INTEGER, defaultValue: 7 });
  await tables.changeColumn("Posts", "title", { type: DataTypes.STRING(300), allowNull: false });
  await tables.addIndex("Posts", ["length"]);
  return (await tables.describeTable("Posts")).title.type;
});
step("lists its foreign keys", async () => {
  const keys = await db.getQueryInterface().getForeignKeyReferencesForTable("Posts");
  return keys.map((key) => [key.columnName, key.referencedTableName]).sort();
});
step("makes a profile", async () => (await (await User.findByPk(1)).createProfile({ text: "hi" })).UserId);
afterRestart("finds everything again", async () => [await User.count(), await Post.count(), await Tag.count()]);
afterRestart("deletes a user with all posts", async () => {
  await User.destroy({ where: { name: "Ann" } });
  const [[{ n }]] = await db.query("SELECT COUNT(*) n FROM PostTag");
  return [await Post.count(), n, (await Profile.findOne()).UserId];
});
afterRestart("drops a table", async () => {
  await Profile.drop();
  return (await db.getQueryInterface().showAllTables()).length;
});

await run(() => db.close());
