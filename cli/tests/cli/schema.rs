// SPDX-License-Identifier: Apache-2.0
//! A small judge of documents against `docs/json/`: type, const, enum, required, properties, items, $ref to
//! `types.schema.json`. Stricter than JSON Schema in one point: a field that no schema describes is an error, because
//! then the documentation is old.

use std::path::PathBuf;

use serde_json::Value;

/// Panics unless `text` is one document of `kind` as `docs/json/KIND.schema.json` describes it.
#[track_caller]
pub fn judge(kind: &str, text: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut faults = Vec::new();
    check(&load(kind), &document, kind, &mut faults);
    assert!(faults.is_empty(), "{}\n{document:#}", faults.join("\n"));
    document
}

fn load(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/json/{name}.schema.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn check(schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference
            .strip_prefix("types.schema.json#/$defs/")
            .expect("references lead to types.schema.json");
        let definition = &load("types")["$defs"][name];
        assert!(definition.is_object(), "{name} is defined");
        return check(definition, value, at, faults);
    }
    if schema.get("const").is_some_and(|only| only != value) {
        faults.push(format!("{at} is {value}, not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        faults.push(format!("{at} is {value}, none of {}", schema["enum"]));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_u64() || n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.is_empty() && !types.contains(&actual) {
        faults.push(format!("{at} is {actual}, not {types:?}"));
    }
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        // What may be null lacks nothing when it is.
        .filter(|_| value.is_object())
    {
        if value.get(name).is_none() {
            faults.push(format!("{at}.{name} is missing"));
        }
    }
    if let (Some(properties), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, field) in fields {
            match properties.get(name) {
                Some(property) => check(property, field, &format!("{at}.{name}"), faults),
                None => faults.push(format!("{at}.{name} is not described")),
            }
        }
    }
    if let (Some(items), Some(list)) = (schema.get("items"), value.as_array()) {
        for (i, item) in list.iter().enumerate() {
            check(items, item, &format!("{at}[{i}]"), faults);
        }
    }
}

#[test]
fn the_judge_finds_faults() {
    let mut faults = Vec::new();
    let document = serde_json::json!({ "schema": "x", "kind": "version", "time": 1, "commit": "", "more": 1 });
    check(&load("version"), &document, "v", &mut faults);
    for fault in [
        "v.schema is",
        "v.time is integer",
        "v.version is missing",
        "v.more is not described",
    ] {
        assert!(faults.iter().any(|f| f.contains(fault)), "{fault}: {faults:?}");
    }
}
