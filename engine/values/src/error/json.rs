//! Errors of JSON documents, paths and functions.
//!
//! None shows a document.

super::errors! {
    /// A text that is no document, for a column.
    wrong_json(what, position, column) = 3140 "22032"
        "Invalid JSON text: \"{what}\" at position {position} in value for column '{column}'.";
    /// A text that is no document, for a function.
    wrong_json_argument(argument, function, what, position) = 3141 "22032"
        "Invalid JSON text in argument {argument} to function {function}: \"{what}\" at position {position}.";
    /// A value that is neither a document nor a text, for a function.
    no_json_argument(argument, function) = 3146 "22032"
        "Invalid data type for JSON data in argument {argument} to function {function}; a JSON string or JSON type is required.";
    /// Bytes for a document, even if they are the bytes of a text.
    json_of_bytes() = 3144 "22032" "Cannot create a JSON value from a string with CHARACTER SET 'binary'.";
    /// A document of more levels than one can have.
    json_too_deep() = 3157 "22032" "The JSON document exceeds the maximum depth.";
    /// A document of more bytes than one can have.
    json_too_big() = 3150 "22032" "The JSON binary value is too big to be stored in a JSON column.";
    /// NULL for the name of a member.
    json_name_null() = 3158 "22032" "JSON documents may not contain NULL member names.";
    /// A path that is none.
    wrong_json_path(position) = 3143 "42000"
        "Invalid JSON path expression. The error is around character position {position}.";
    /// A path to many values where it must lead to one.
    json_path_to_many() = 3149 "42000"
        "In this situation, path expressions may not contain the * and ** tokens or an array range.";
    /// The path of the whole document where a part is meant.
    json_path_to_root() = 3153 "42000" "The path expression '$' is not allowed in this context.";
    /// A path that leads to no cell of an array where one is meant.
    json_path_to_no_cell() = 3165 "42000" "A path expression is not a path to a cell in an array.";
    /// Neither 'one' nor 'all'.
    json_one_or_all(function) = 3154 "42000" "The oneOrAll argument to {function} may take these values: 'one' or 'all'.";
    /// A first argument of a type that the function does not take.
    wrong_json_type(function) = 3064 "HY000" "Incorrect type for argument 1 in function {function}.";
}
