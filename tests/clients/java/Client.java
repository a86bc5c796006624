// What a JDBC driver does with a server: one line of JSON for each thing, and whether it worked.

import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDateTime;

public class Client {
    interface Work { void run() throws Exception; }

    static void step(String did, Work work) {
        String error = "";
        try { work.run(); } catch (Throwable e) { error = e.toString().split("\n")[0]; }
        System.out.println("{\"did\": \"" + did + "\", \"error\": \"" + error.replace("\\", "\\\\").replace("\"", "'") + "\"}");
    }

    static void same(String what, Object got, Object want) throws Exception {
        if (!String.valueOf(want).equals(String.valueOf(got))) throw new Exception(what + " is " + got + ", not " + want);
    }

    public static void main(String[] words) throws Exception {
        for (int set = 1; set < words.length; set++) run(words[0], words[set]);
    }

    static void run(String url, String properties) throws Exception {
        String how = ", " + (properties.isEmpty() ? "default" : properties);
        DriverManager.setLoginTimeout(20);
        Connection[] at = new Connection[1];
        step("connect" + how, () -> at[0] = DriverManager.getConnection(url + "?" + properties, "root", ""));
        if (at[0] == null) return;
        Connection c = at[0];
        String db = "j" + Math.abs(url.concat(properties).hashCode());
        step("DDL and catalog" + how, () -> {
            try (Statement s = c.createStatement()) {
                s.execute("DROP DATABASE IF EXISTS " + db);
                s.execute("CREATE DATABASE " + db);
            }
            c.setCatalog(db);
            // A statement keeps the catalog that it was made in.
            try (Statement s = c.createStatement()) {
                s.execute("CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20) NOT NULL, d DECIMAL(10,2), at DATETIME(6), x DOUBLE, KEY by_s (s))");
            }
            same("the catalog", c.getCatalog(), db);
        });
        step("batch insert with keys" + how, () -> {
            String sql = "INSERT INTO t (s, d, at, x) VALUES (?, ?, ?, ?)";
            try (PreparedStatement s = c.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
                for (int n = 0; n < 50; n++) {
                    s.setString(1, "☃" + n);
                    s.setBigDecimal(2, new BigDecimal(n + ".25"));
                    s.setObject(3, LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4000));
                    if (n == 7) s.setNull(4, Types.DOUBLE); else s.setDouble(4, n / 4.0);
                    s.addBatch();
                }
                same("the batch", s.executeBatch().length, 50);
                int keys = 0;
                try (ResultSet r = s.getGeneratedKeys()) { while (r.next()) keys++; }
                same("the keys", keys, 50);
            }
        });
        step("read every type" + how, () -> {
            try (PreparedStatement s = c.prepareStatement("SELECT id, s, d, at, x FROM t WHERE s = ?")) {
                s.setString(1, "☃7");
                try (ResultSet r = s.executeQuery()) {
                    r.next();
                    same("s", r.getString("s"), "☃7");
                    same("d", r.getBigDecimal("d"), "7.25");
                    same("at", r.getObject("at", LocalDateTime.class), "2024-02-29T01:02:03.000004");
                    same("x", r.getObject("x"), null);
                    same("id", r.getObject("id").getClass().getSimpleName(), "Long");
                }
            }
        });
        step("fetch size" + how, () -> {
            try (Statement s = c.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
                s.setFetchSize(7);
                int rows = 0;
                try (ResultSet r = s.executeQuery("SELECT * FROM t ORDER BY id")) { while (r.next()) rows++; }
                same("rows", rows, 50);
            }
        });
        step("transactions and savepoints" + how, () -> {
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.executeUpdate("DELETE FROM t WHERE id <= 10");
                Savepoint point = c.setSavepoint("p");
                s.executeUpdate("DELETE FROM t");
                c.rollback(point);
                c.commit();
                c.setAutoCommit(true);
                try (ResultSet r = s.executeQuery("SELECT COUNT(*) FROM t")) { r.next(); same("rows", r.getInt(1), 40); }
            } finally { c.setAutoCommit(true); }
        });
        step("updatable result" + how, () -> {
            try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                    ResultSet r = s.executeQuery("SELECT id, s, d FROM t WHERE s = '☃20'")) {
                r.next();
                r.updateString("s", "changed");
                r.updateRow();
            }
            try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT COUNT(*) FROM t WHERE s = 'changed'")) {
                r.next();
                same("rows", r.getInt(1), 1);
            }
        });
        step("metadata" + how, () -> {
            DatabaseMetaData m = c.getMetaData();
            StringBuilder seen = new StringBuilder();
            try (ResultSet r = m.getTables(db, null, "%", new String[] {"TABLE"})) { while (r.next()) seen.append(r.getString("TABLE_NAME")).append(' '); }
            try (ResultSet r = m.getColumns(db, null, "t", "%")) { while (r.next()) seen.append(r.getString("COLUMN_NAME")).append(':').append(r.getInt("DATA_TYPE")).append(r.getInt("NULLABLE") == DatabaseMetaData.columnNullable ? "? " : " "); }
            try (ResultSet r = m.getPrimaryKeys(db, null, "t")) { while (r.next()) seen.append(r.getString("COLUMN_NAME")).append(' '); }
            try (ResultSet r = m.getIndexInfo(db, null, "t", false, true)) { while (r.next()) seen.append(r.getString("INDEX_NAME")).append(' '); }
            same("what is seen", seen.toString().trim(), "t id:-5 s:12 d:3? at:93? x:8? id PRIMARY by_s");
        });
        step("cancel by timeout" + how, () -> {
            try (Statement s = c.createStatement()) {
                s.setQueryTimeout(1);
                long begun = System.nanoTime();
                try { s.execute("SELECT SLEEP(20)"); } catch (SQLException e) { /* as it should be */ }
                if (System.nanoTime() - begun > 15_000_000_000L) throw new Exception("it was not cancelled");
            }
            try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT 1")) { r.next(); }
        });
        step("isValid and close" + how, () -> { same("isValid", c.isValid(5), true); c.close(); });
    }
}
