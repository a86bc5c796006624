//! Errors of connections: handshakes, packets and commands of MySQL's protocol.
//!
//! It says nothing of what a statement does once it has arrived.

super::errors! {
    /// The limit of connections is reached.
    too_many_connections(most) = 1040 "08004"
        "Too many connections: the limit is {most}. Close idle ones and connect again";
    /// The client's first packets make no sense.
    bad_handshake(why) = 1043 "08S01" "Bad handshake: {why}";
    /// A client from before MySQL 4.1.
    client_too_old() = 1251 "08004"
        "Client does not support authentication protocol requested by server; consider upgrading MySQL client";
    /// A command that is none that is answered.
    unknown_command(command) = 1047 "08S01" "Unknown command: {command}";
    /// The server is going down.
    shutting_down() = 1053 "08S01" "Server shutdown in progress";
    /// Several statements where the client allowed one.
    multi_statements_off() = 1064 "42000"
        "You have an error in your SQL syntax: several statements in one query need CLIENT_MULTI_STATEMENTS, which this client has not asked for";
    /// A packet of more bytes than one can have.
    packet_too_large(most) = 1153 "08S01" "Got a packet bigger than 'max_allowed_packet' bytes ({most})";
    /// A packet that is not the next one.
    packets_out_of_order() = 1156 "08S01" "Got packets out of order";
    /// A packet that does not arrive.
    packet_timeout() = 1159 "08S01" "Got timeout reading communication packets";
    /// A packet whose content contradicts itself.
    malformed(what) = 1835 "HY000" "Malformed communication packet: {what}";
    /// A connection that nothing came by for too long.
    idle() = 4031 "HY000"
        "The client was disconnected by the server because of inactivity. Connect again";
}
