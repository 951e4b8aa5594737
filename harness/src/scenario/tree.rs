//! TOML as read, each value with the place it stands at, so that every refusal can name file and line, or the flag.

use super::ScenarioError;
use crate::sanitize::sanitize;
use std::{fmt, ops::Range, sync::Arc};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Most characters of a value that are kept for messages.
const MAX_READ: usize = 80;

/// Where something was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, from 1.
    Line(Arc<str>, usize),
    /// A flag or an argument, as typed.
    Flag(Arc<str>),
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    /// The value as written, its beginning if it is long.
    pub(super) read: String,
    pub(super) place: Place,
}

/// What a node holds.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    /// `None` when no integer is wide enough.
    Integer(Option<i128>),
    Float(f64),
    Boolean(bool),
    /// A date; no key takes one.
    Other,
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Entry {
    /// The entry of this key in its table; itself where there is none.
    pub(super) fn inside(&self, key: &str) -> &Self {
        let entries = match &self.node.value {
            Value::Table(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().find(|entry| entry.key == key).unwrap_or(self)
    }
}

impl Place {
    /// A flag or an argument, as typed.
    pub fn flag(text: &str) -> Self {
        Self::Flag(sanitize(text).into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{file}, line {line}"),
            Self::Flag(text) => f.write_str(text),
        }
    }
}

/// What places are made of while one text is read.
enum Source {
    /// The file's name and where each of its lines ends.
    File(Arc<str>, Vec<usize>),
    Flag(Place),
}

impl Source {
    fn file(name: &str, text: &str) -> Self {
        let ends = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(position, _)| position);
        Self::File(sanitize(name).into(), ends.collect())
    }

    fn place(&self, span: &Range<usize>) -> Place {
        match self {
            Self::File(file, ends) => Place::Line(file.clone(), ends.partition_point(|end| *end < span.start) + 1),
            Self::Flag(place) => place.clone(),
        }
    }
}

impl Node {
    /// An empty table.
    fn empty(place: Place) -> Self {
        Self {
            value: Value::Table(Vec::new()),
            read: String::new(),
            place,
        }
    }

    /// A text that no file holds.
    fn text(text: &str, place: Place) -> Self {
        Self {
            value: Value::Text(text.to_owned()),
            read: text.chars().take(MAX_READ).collect(),
            place,
        }
    }

    /// The tree that a chain line stands for.
    pub(super) fn chain_line(line: &str) -> Self {
        let place = Place::flag("the chain line");
        let table = |key: &str, node| {
            let entry = Entry {
                key: key.to_owned(),
                place: place.clone(),
                node,
            };
            Self {
                value: Value::Table(vec![entry]),
                ..Self::empty(place.clone())
            }
        };
        table("chain", table("line", Self::text(line, place.clone())))
    }

    /// Reads a whole document. `file` is its name in messages.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let source = Source::file(file, text);
        match DeTable::parse(text) {
            Ok(table) => {
                let span = table.span();
                Ok(table_node(table.into_inner(), &span, text, &source))
            }
            Err(error) => {
                let place = source.place(&error.span().unwrap_or(0..0));
                Err(ScenarioError::Wrong {
                    place,
                    message: format!("this is no TOML: {}", sanitize(error.message())),
                })
            }
        }
    }

    /// Puts one `PATH=VALUE` into this table; what stood at the path is replaced.
    pub(super) fn set(&mut self, assignment: &str) -> Result<(), ScenarioError> {
        let place = Place::flag(&format!("--set {assignment}"));
        let wrong = |message: &str| ScenarioError::Wrong {
            place: place.clone(),
            message: message.to_owned(),
        };
        let (path, value) = assignment
            .split_once('=')
            .ok_or_else(|| wrong("write PATH=VALUE, as in load.requests=5"))?;
        let keys =
            path_keys(path).ok_or_else(|| wrong("the path is keys with dots between them, as in load.requests"))?;
        let node = value_node(value, &place);
        let mut table = self;
        let (last, parents) = keys.split_last().ok_or_else(|| wrong("the path is empty"))?;
        for key in parents {
            let Value::Table(entries) = &mut table.value else {
                return Err(wrong("the path leads through a value"));
            };
            let position = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
                entries.push(Entry {
                    key: key.clone(),
                    place: place.clone(),
                    node: Self::empty(place.clone()),
                });
                entries.len() - 1
            });
            table = &mut entries[position].node;
        }
        let Value::Table(entries) = &mut table.value else {
            return Err(wrong("the path leads through a value"));
        };
        entries.retain(|entry| entry.key != *last);
        entries.push(Entry {
            key: last.clone(),
            place: place.clone(),
            node,
        });
        Ok(())
    }
}

/// The keys of a dotted path; quoted keys may hold dots of their own.
fn path_keys(path: &str) -> Option<Vec<String>> {
    if path.contains(['\n', '\r', '#', '[', '{']) {
        return None;
    }
    let document = format!("{path} = 0");
    let mut table = DeTable::parse(&document).ok()?.into_inner();
    let mut keys = Vec::new();
    loop {
        let mut entries = table.into_iter();
        let (key, value) = entries.next()?;
        keys.push(key.into_inner().into_owned());
        match value.into_inner() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(keys),
        }
    }
}

/// The value behind `=`: TOML, or else the text itself.
fn value_node(value: &str, place: &Place) -> Node {
    let source = Source::Flag(place.clone());
    match DeValue::parse(value.trim()) {
        Ok(parsed) => node(parsed, value.trim(), &source),
        Err(_) => Node::text(value, place.clone()),
    }
}

fn node(value: Spanned<DeValue<'_>>, text: &str, source: &Source) -> Node {
    let span = value.span();
    let read = text
        .get(span.clone())
        .unwrap_or_default()
        .chars()
        .take(MAX_READ)
        .collect();
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => Value::Integer(i128::from_str_radix(integer.as_str(), integer.radix()).ok()),
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(yes) => Value::Boolean(yes),
        DeValue::Datetime(_) => Value::Other,
        DeValue::Array(values) => Value::List(values.into_iter().map(|value| node(value, text, source)).collect()),
        DeValue::Table(table) => {
            return Node {
                read,
                ..table_node(table, &span, text, source)
            };
        }
    };
    Node {
        value,
        read,
        place: source.place(&span),
    }
}

fn table_node(table: DeTable<'_>, span: &Range<usize>, text: &str, source: &Source) -> Node {
    let mut entries: Vec<_> = table.into_iter().collect();
    // The first mistake of the file is the one to name.
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (Spanned<std::borrow::Cow<'_, str>>, Spanned<DeValue<'_>>)| {
        let place = source.place(&key.span());
        Entry {
            key: key.into_inner().into_owned(),
            place,
            node: node(value, text, source),
        }
    };
    let entries = entries.into_iter().map(entry).collect();
    Node {
        value: Value::Table(entries),
        read: String::new(),
        place: source.place(span),
    }
}
