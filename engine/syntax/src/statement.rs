//! What a client can ask for, after parsing.
//!
//! It says what was written: no name is looked up.

use std::time::Duration;

use sqlparser::ast::{
    ColumnDef, CreateIndex, CreateTable, Delete, Expr, ForeignKeyConstraint, Insert, ObjectName,
    Query, Update,
};
use types::calibration::KnownLoad;
use types::resource_group::{Action, Likeness};
use types::{GroupOptions, Privileges};
use values::error::SqlError;

/// What to do with a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// SAVEPOINT: make it, in the place of an older one of the name.
    Set,
    /// ROLLBACK TO: forget what was written since, and later savepoints.
    RollBack,
    /// RELEASE: forget it and later ones, and keep the writes.
    Release,
}

/// What a SET TRANSACTION is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The next transaction.
    Next,
    /// All transactions of the session from now on.
    Session,
    /// Sessions to come.
    Global,
}

/// How a transaction goes about rows that others write as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It locks rows before it writes them.
    Pessimistic,
    /// Conflicts show at commit.
    Optimistic,
}

/// What is to be done with whole tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// ANALYZE TABLE.
    Analyze,
    /// CHECK TABLE: what is wrong is a row of the answer.
    Check,
    /// ADMIN CHECK TABLE: what is wrong is an error.
    AdminCheck,
    /// OPTIMIZE TABLE.
    Optimize,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// SELECT, VALUES, TABLE, WITH.
    Query(Box<Query>),
    /// SELECT … INTO @a, @b.
    SelectInto(Box<Query>, Vec<String>),
    /// PREPARE name FROM text.
    Prepare {
        /// What it is called.
        name: String,
        /// Its text: a literal or a variable.
        source: Box<Expr>,
    },
    /// EXECUTE name USING variables.
    Execute {
        /// Which.
        name: String,
        /// The variables that are its parameters.
        using: Vec<String>,
    },
    /// DEALLOCATE PREPARE name.
    Deallocate(String),
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE, and whether with IGNORE.
    Delete(Box<Delete>, bool),
    /// EXPLAIN of a statement.
    Explain {
        /// Whether to run it.
        analyze: bool,
        /// Of what.
        statement: Box<Stmt>,
    },
    /// DESCRIBE t [column].
    Describe {
        /// Table.
        table: ObjectName,
        /// Column or pattern.
        column: Option<String>,
    },
    /// BEGIN, START TRANSACTION.
    Begin {
        /// How, if that is said.
        mode: Option<Mode>,
        /// READ ONLY or READ WRITE, if that is said.
        read_only: Option<bool>,
        /// The time of READ ONLY AS OF TIMESTAMP.
        as_of: Option<Box<Expr>>,
    },
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SAVEPOINT, ROLLBACK TO, RELEASE SAVEPOINT.
    Savepoint(Step, String),
    /// SET of variables.
    Set(Vec<Assignment>),
    /// SET NAMES, SET CHARACTER SET: text is UTF-8.
    SetNames(String),
    /// SET [SESSION | GLOBAL] TRANSACTION ISOLATION LEVEL …
    SetTransaction {
        /// For which transactions.
        scope: Scope,
        /// ISOLATION LEVEL, in upper case.
        level: Option<String>,
        /// READ ONLY or READ WRITE.
        read_only: Option<bool>,
        /// The time of READ ONLY AS OF TIMESTAMP.
        as_of: Option<Box<Expr>>,
    },
    /// SET PASSWORD.
    SetPassword {
        /// Whose; the session's own without.
        user: Option<UserName>,
        /// In clear.
        password: String,
    },
    /// CREATE USER, ALTER USER.
    PutUser {
        /// Who, and the password in clear if one is given.
        users: Vec<(UserName, Option<String>)>,
        /// RESOURCE GROUP, in lower case.
        group: Option<String>,
        /// IF NOT EXISTS or IF EXISTS.
        lenient: bool,
        /// CREATE or ALTER.
        create: bool,
    },
    /// DROP USER.
    DropUser {
        /// Who.
        users: Vec<UserName>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CREATE RESOURCE GROUP, ALTER RESOURCE GROUP.
    PutResourceGroup {
        /// Which, in lower case.
        name: String,
        /// What is said of it.
        options: Box<GroupOptions>,
        /// IF NOT EXISTS or IF EXISTS.
        lenient: bool,
        /// CREATE or ALTER.
        create: bool,
    },
    /// DROP RESOURCE GROUP.
    DropResourceGroup {
        /// Which, in lower case.
        name: String,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// SET RESOURCE GROUP, in lower case.
    SetResourceGroup(String),
    /// QUERY WATCH ADD.
    QueryWatch(Box<WatchOrder>),
    /// QUERY WATCH REMOVE.
    QueryUnwatch(u64),
    /// SET CONFIG.
    SetConfig {
        /// Of a kind of node, or of one by its address or number.
        whose: String,
        /// The setting, as it was written.
        name: String,
        /// Its value; DEFAULT for what the node's file says.
        value: Option<String>,
    },
    /// CALIBRATE RESOURCE.
    Calibrate(Box<CalibrateBy>),
    /// GRANT, REVOKE.
    Grant(Box<Grant>),
    /// USE.
    Use(String),
    /// CREATE DATABASE.
    CreateDatabase {
        /// Name.
        name: String,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP TRIGGER, PROCEDURE, FUNCTION or EVENT: there is none to drop.
    DropAbsent {
        /// TRIGGER, PROCEDURE, FUNCTION or EVENT.
        kind: String,
        /// Its name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// DROP DATABASE.
    DropDatabase {
        /// Name.
        name: String,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// ALTER DATABASE, to what every database has: of the current one without a name.
    AlterDatabase(Option<String>),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// DROP TABLE.
    DropTable {
        /// Names.
        names: Vec<ObjectName>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CREATE INDEX, ALTER TABLE … ADD INDEX and nothing else.
    CreateIndex(Box<CreateIndex>),
    /// DROP INDEX, ALTER TABLE … DROP INDEX.
    DropIndex {
        /// Index.
        name: String,
        /// Table.
        table: ObjectName,
    },
    /// ALTER TABLE, but for what has a statement of its own here.
    AlterTable {
        /// Table.
        table: ObjectName,
        /// What becomes of it, all at once.
        actions: Vec<Alter>,
    },
    /// TRUNCATE TABLE.
    Truncate(ObjectName),
    /// RENAME TABLE: from what, to what.
    RenameTables(Vec<(ObjectName, ObjectName)>),
    /// CREATE VIEW, ALTER VIEW.
    PutView(Box<DefineView>),
    /// DROP VIEW.
    DropViews {
        /// Names.
        names: Vec<ObjectName>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// ALTER TABLE … SET COLUMNAR REPLICA n.
    SetReplica {
        /// Table.
        table: ObjectName,
        /// How many.
        count: u64,
    },
    /// SPLIT TABLE … REGIONS n.
    SplitTable {
        /// Table.
        table: ObjectName,
        /// How many.
        regions: u64,
    },
    /// ANALYZE, CHECK, OPTIMIZE TABLE.
    Maintain {
        /// What to do.
        task: Task,
        /// With which tables.
        tables: Vec<ObjectName>,
    },
    /// LOCK TABLES.
    LockTables(Vec<ObjectName>),
    /// LOAD DATA LOCAL INFILE.
    LoadData(Box<LoadData>),
    /// SHOW.
    Show(Show),
    /// KILL [QUERY | CONNECTION] n.
    Kill {
        /// Connection.
        id: u64,
        /// Only its statement.
        query: bool,
    },
    /// DO.
    Do(Vec<Expr>),
    /// Most kinds of FLUSH: nothing is to be done for them.
    Flush,
    /// What is accepted and changes nothing: UNLOCK TABLES.
    Nothing,
}

/// What QUERY WATCH ADD asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchOrder {
    /// The group, in lower case.
    pub group: String,
    /// What happens; without, what the group's QUERY_LIMIT says.
    pub action: Option<Action>,
    /// By what queries are alike.
    pub by: Likeness,
    /// Text or digest, by that.
    pub text: String,
}

/// What CALIBRATE RESOURCE goes by.
#[derive(Clone, Debug, PartialEq)]
pub enum CalibrateBy {
    /// The machines, under this load.
    Workload(KnownLoad),
    /// What was used.
    Used {
        /// From when.
        start: Box<Expr>,
        /// Until when; without, until now.
        until: Option<Until>,
    },
}

/// When a time ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Until {
    /// Then.
    End(Box<Expr>),
    /// After so long.
    Lasts(Duration),
}

/// GRANT, REVOKE.
#[derive(Clone, Debug)]
pub struct Grant {
    /// GRANT; else REVOKE.
    pub give: bool,
    /// Which privileges; none for USAGE.
    pub privileges: Privileges,
    /// On what; none for REVOKE ALL PRIVILEGES, GRANT OPTION.
    pub level: Option<GrantLevel>,
    /// To or from whom; `None` is CURRENT_USER.
    pub users: Vec<Option<UserName>>,
    /// REVOKE IF EXISTS: what is not there is a warning.
    pub if_exists: bool,
    /// REVOKE … IGNORE UNKNOWN USER.
    pub ignore_unknown: bool,
}

/// What a GRANT or REVOKE is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantLevel {
    /// `*.*`.
    Everything,
    /// `*`: the current database.
    Current,
    /// `d.*`, whose name may be a pattern.
    Database(String),
    /// A table.
    Table(ObjectName),
}

/// A view as a statement defines it.
#[derive(Clone, Debug)]
pub struct DefineView {
    /// ALTER: it is there.
    pub alter: bool,
    /// OR REPLACE.
    pub replace: bool,
    /// Name.
    pub name: ObjectName,
    /// Names of its columns; those of the query without.
    pub columns: Vec<String>,
    /// What it shows.
    pub query: Box<Query>,
    /// DEFINER; who defines it without.
    pub definer: Option<UserName>,
    /// SQL SECURITY INVOKER.
    pub invoker: bool,
}

/// One action of an ALTER TABLE.
#[derive(Clone, Debug)]
pub enum Alter {
    /// ADD COLUMN.
    Add {
        /// Column.
        column: Box<ColumnDef>,
        /// Where.
        at: Position,
        /// IF NOT EXISTS.
        lenient: bool,
    },
    /// DROP COLUMN.
    Drop {
        /// Column.
        name: String,
        /// IF EXISTS.
        lenient: bool,
    },
    /// CHANGE COLUMN, or MODIFY COLUMN under the same name.
    Change {
        /// Name until now.
        old: String,
        /// As it becomes.
        column: Box<ColumnDef>,
        /// Where; last stands for where it is.
        at: Position,
    },
    /// RENAME COLUMN.
    Rename {
        /// Name until now.
        old: String,
        /// From now on.
        new: String,
    },
    /// ALTER COLUMN … SET DEFAULT or DROP DEFAULT.
    SetDefault {
        /// Column.
        column: String,
        /// None to drop it.
        value: Option<Box<Expr>>,
    },
    /// RENAME TO.
    RenameTable(ObjectName),
    /// RENAME INDEX.
    RenameIndex {
        /// Name until now.
        old: String,
        /// From now on.
        new: String,
    },
    /// ALTER INDEX … VISIBLE or INVISIBLE.
    ShowIndex {
        /// Index.
        name: String,
        /// Whether reads may use it.
        visible: bool,
    },
    /// DROP INDEX.
    DropIndex(String),
    /// ADD INDEX or ADD UNIQUE, beside other actions.
    AddIndex(Box<CreateIndex>),
    /// COMMENT = '…'.
    Comment(String),
    /// AUTO_INCREMENT = n.
    Number(u64),
    /// An option that has no effect, and the warning about it.
    Warning(SqlError),
    /// `ADD [CONSTRAINT [name]] CHECK`.
    AddCheck {
        /// Name; one is made up without.
        name: Option<String>,
        /// The condition.
        condition: Box<Expr>,
        /// Unless it says NOT ENFORCED.
        enforced: bool,
    },
    /// DROP CHECK, or DROP CONSTRAINT.
    DropCheck {
        /// Name.
        name: String,
        /// DROP CONSTRAINT, which names keys, too.
        constraint: bool,
    },
    /// `ADD [CONSTRAINT [name]] FOREIGN KEY`.
    AddForeignKey(Box<ForeignKeyConstraint>),
    /// DROP FOREIGN KEY.
    DropForeignKey(String),
    /// `ALTER CHECK` or `ALTER CONSTRAINT … [NOT] ENFORCED`.
    Enforce {
        /// Name.
        name: String,
        /// Whether from now on.
        enforced: bool,
    },
}

/// Where a column comes to stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// FIRST.
    First,
    /// AFTER a column.
    After(String),
    /// Not said.
    Last,
}

/// A variable and what it becomes.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Which.
    pub target: Target,
    /// DEFAULT is `None`.
    pub value: Option<Expr>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `@name`.
    User(String),
    /// A session variable.
    Session(String),
    /// A global variable.
    Global(String),
}

/// `'name'@'host'`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// Name.
    pub name: String,
    /// Host pattern.
    pub host: String,
}

/// SHOW … [FROM …] [LIKE … | WHERE …].
#[derive(Clone, Debug)]
pub struct Show {
    /// Of what.
    pub kind: ShowKind,
    /// LIKE or WHERE.
    pub filter: Filter,
}

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShowKind {
    /// CONFIG.
    Config,
    /// DATABASES.
    Databases,
    /// TABLES.
    Tables {
        /// Of which database.
        database: Option<String>,
        /// With their type.
        full: bool,
    },
    /// TABLE STATUS.
    TableStatus {
        /// Of which database.
        database: Option<String>,
    },
    /// COLUMNS.
    Columns {
        /// Of which table.
        table: ObjectName,
        /// With collation, privileges, comment.
        full: bool,
    },
    /// INDEX.
    Index {
        /// Of which table.
        table: ObjectName,
    },
    /// CREATE TABLE.
    CreateTable(ObjectName),
    /// CREATE VIEW.
    CreateView(ObjectName),
    /// CREATE DATABASE.
    CreateDatabase(String),
    /// CREATE RESOURCE GROUP.
    CreateResourceGroup(String),
    /// VARIABLES.
    Variables {
        /// What is set for everybody.
        global: bool,
    },
    /// STATUS.
    Status,
    /// WARNINGS, ERRORS.
    Warnings {
        /// Errors alone.
        errors: bool,
        /// LIMIT: how many to leave out, and how many to show.
        window: (u64, u64),
    },
    /// COUNT(*) WARNINGS, COUNT(*) ERRORS.
    WarningCount {
        /// Errors alone.
        errors: bool,
    },
    /// ENGINES.
    Engines,
    /// COLLATION.
    Collation,
    /// CHARACTER SET.
    CharacterSet,
    /// PROCESSLIST.
    Processlist {
        /// FULL: whole statements.
        full: bool,
    },
    /// GRANTS of a user; the session's own without.
    Grants(Option<UserName>),
    /// PLUGINS, EVENTS, TRIGGERS and others of which there are none.
    Empty(String),
}

/// Which rows to show.
#[derive(Clone, Debug)]
pub enum Filter {
    /// All.
    All,
    /// LIKE on the first column.
    Like(String),
    /// WHERE.
    Where(Box<Expr>),
}

/// LOAD DATA LOCAL INFILE.
#[derive(Clone, Debug)]
pub struct LoadData {
    /// Name for the client.
    pub file: String,
    /// Table.
    pub table: ObjectName,
    /// REPLACE: rows of the same key go; without, the new ones are left out, as under IGNORE, which
    /// LOCAL implies.
    pub replace: bool,
    /// FIELDS TERMINATED BY.
    pub separator: String,
    /// FIELDS ENCLOSED BY.
    pub quote: Option<u8>,
    /// FIELDS ESCAPED BY.
    pub escape: Option<u8>,
    /// LINES TERMINATED BY.
    pub line_end: String,
    /// IGNORE n LINES.
    pub skip: u64,
    /// Columns and variables in file order; empty for all columns.
    pub columns: Vec<LoadTarget>,
    /// SET column = expression.
    pub assignments: Vec<(String, Expr)>,
}

/// Where a field of a line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadTarget {
    /// Column.
    Column(String),
    /// `@variable`.
    Variable(String),
}
