// What the Arrow Flight SQL JDBC driver requests of the catalog: one line of JSON for each thing, and whether it worked.

import java.sql.*;
import java.util.*;

public class FlightSql {
    interface Work { void run() throws Exception; }

    interface Request { ResultSet of(DatabaseMetaData m) throws SQLException; }

    static void step(String did, Work work) {
        String error = "";
        try { work.run(); } catch (Throwable e) { error = e.toString().split("\n")[0]; }
        System.out.println("{\"did\": \"" + did + "\", \"error\": \"" + error.replace("\\", "\\\\").replace("\"", "'") + "\"}");
    }

    static void same(Connection c, Request request, String want, String... columns) throws Exception {
        List<String> got = new ArrayList<>();
        try (ResultSet r = request.of(c.getMetaData())) {
            while (r.next()) for (String column : columns) got.add(r.getString(column));
        }
        if (!String.join(" ", got).equals(want)) throw new Exception("it is " + got + ", not " + want);
    }

    public static void main(String[] words) throws Exception {
        DriverManager.setLoginTimeout(20);
        String url = "jdbc:arrow-flight-sql://" + words[0] + "/?useEncryption=false";
        Connection[] at = new Connection[1];
        step("connect", () -> at[0] = DriverManager.getConnection(url, words[1], words[2]));
        if (at[0] == null) return;
        Connection c = at[0];
        String[] only = {"TABLE"};
        step("getSchemas", () -> same(c, m -> m.getSchemas(), "adbc information_schema", "TABLE_SCHEM"));
        step("getTableTypes", () -> same(c, m -> m.getTableTypes(), "TABLE VIEW", "TABLE_TYPE"));
        step("getTables", () -> same(c, m -> m.getTables(null, "adbc", "%", only), "def t", "TABLE_CAT", "TABLE_NAME"));
        step("getColumns", () -> same(c, m -> m.getColumns("def", "adbc", "t", "%"), "id 4 name 12 pay 3 hired 91 at 93",
            "COLUMN_NAME", "DATA_TYPE"));
        step("getPrimaryKeys", () -> same(c, m -> m.getPrimaryKeys(null, "adbc", "t"), "id 1", "COLUMN_NAME", "KEY_SEQ"));
        step("getImportedKeys", () -> same(c, m -> m.getImportedKeys(null, "adbc", "t"), "", "PKTABLE_NAME"));
        step("getDatabaseProductName", () -> {
            String name = c.getMetaData().getDatabaseProductName();
            if (!"Isobar".equals(name)) throw new Exception("it is " + name);
        });
        step("query", () -> { try (Statement s = c.createStatement()) { s.executeQuery("SELECT 1"); } });
        step("query with parameters, twice", () -> {
            try (PreparedStatement s = c.prepareStatement("SELECT pay, ? FROM adbc.t WHERE id = ?")) {
                for (int id = 1; id <= 2; id++) {
                    s.setString(1, "it's " + id);
                    s.setString(2, "" + id);
                    try (ResultSet r = s.executeQuery()) {
                        if (!r.next()) throw new Exception("no row of " + id);
                        String got = r.getString(1) + ", " + r.getString(2);
                        if (!got.equals((id == 1 ? "1.50" : "null") + ", it's " + id)) throw new Exception("it is " + got);
                        if (r.next()) throw new Exception("more than one row of " + id);
                    }
                }
            }
        });
        c.close();
    }
}
