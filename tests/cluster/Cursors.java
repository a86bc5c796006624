// Reads a result that is larger than this program's memory, piece by piece, over Connector/J.
// Prints how many rows there were, the sum of their numbers, and the rows of a second cursor that
// was read in between.

import java.sql.*;

class Cursors {
    public static void main(String[] args) throws Exception {
        try (Connection connection = DriverManager.getConnection(args[0], "root", "")) {
            String wide = "SELECT id, REPEAT('x', 2000) FROM t WHERE id >= ?";
            String narrow = "SELECT id FROM t WHERE id < ? ORDER BY id";
            try (PreparedStatement first = connection.prepareStatement(wide);
                    PreparedStatement second = connection.prepareStatement(narrow)) {
                first.setInt(1, 0);
                first.setFetchSize(500);
                second.setInt(1, 7);
                second.setFetchSize(3);
                long rows = 0, sum = 0, between = 0;
                try (ResultSet all = first.executeQuery(); ResultSet few = second.executeQuery()) {
                    while (all.next()) {
                        rows++;
                        sum += all.getLong(1);
                        if (all.getString(2).length() != 2000) throw new IllegalStateException("cut");
                        if (few.next()) between++;
                    }
                }
                System.out.println(rows + " " + sum + " " + between);
            }
        }
    }
}
