//! Tables of named columns as Parquet files, with texts about them in the file's metadata.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use parquet::{
    basic::{Compression, ConvertedType, GzipLevel, Repetition, Type as Physical},
    column::{reader::ColumnReader, writer::ColumnWriter},
    data_type::ByteArray,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader as _, SerializedFileReader},
        writer::SerializedFileWriter,
    },
    schema::types::Type,
};

/// The values of a column from the first row to the last; `None` is null.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Yes or no.
    Flag(Vec<Option<bool>>),
    /// Whole numbers.
    Int(Vec<Option<i64>>),
    /// Numbers.
    Float(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
}

/// A file's content: columns of one length by their names, and texts by theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// In their order.
    pub columns: Vec<(String, Column)>,
    /// The file's metadata.
    pub said: Vec<(String, String)>,
}

impl Columns {
    /// Writes it to `file`; it is there as a whole or not at all.
    pub fn write(&self, file: &Path) -> Result<()> {
        let unfinished = file.with_extension("parquet.unfinished");
        self.put(&unfinished)
            .and_then(|()| Ok(fs::rename(&unfinished, file)?))
            .with_context(|| format!("writing {}", file.display()))
    }

    fn put(&self, file: &Path) -> Result<()> {
        let fields = self.columns.iter().map(|(name, column)| {
            let (physical, converted) = match column {
                Column::Flag(_) => (Physical::BOOLEAN, ConvertedType::NONE),
                Column::Int(_) => (Physical::INT64, ConvertedType::NONE),
                Column::Float(_) => (Physical::DOUBLE, ConvertedType::NONE),
                Column::Text(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            };
            let field = Type::primitive_type_builder(name, physical)
                .with_converted_type(converted)
                .with_repetition(Repetition::OPTIONAL);
            Ok(Arc::new(field.build()?))
        });
        let fields = fields.collect::<Result<_>>()?;
        let schema = Type::group_type_builder("table").with_fields(fields);
        let said = self.said.iter().cloned();
        let properties = WriterProperties::builder()
            .set_compression(Compression::GZIP(GzipLevel::try_new(9)?))
            .set_key_value_metadata(Some(said.map(|(k, v)| KeyValue::new(k, v)).collect()));
        let mut writer = SerializedFileWriter::new(
            fs::File::create(file)?,
            Arc::new(schema.build()?),
            Arc::new(properties.build()),
        )?;
        let mut group = writer.next_row_group()?;
        for (name, column) in &self.columns {
            // Writes all values that are there, and which they are.
            macro_rules! put {
                ($to:expr, $all:expr, $of:expr) => {{
                    let values: Vec<_> = $all.iter().flatten().map($of).collect();
                    let there: Vec<i16> = $all.iter().map(|v| v.is_some().into()).collect();
                    $to.write_batch(&values, Some(&there), None)?;
                }};
            }
            let text = |text: &String| ByteArray::from(text.as_str());
            let mut open = group.next_column()?.context("a column too many")?;
            match (open.untyped(), column) {
                (ColumnWriter::BoolColumnWriter(to), Column::Flag(all)) => put!(to, all, |v| *v),
                (ColumnWriter::Int64ColumnWriter(to), Column::Int(all)) => put!(to, all, |v| *v),
                (ColumnWriter::DoubleColumnWriter(to), Column::Float(all)) => put!(to, all, |v| *v),
                (ColumnWriter::ByteArrayColumnWriter(to), Column::Text(all)) => put!(to, all, text),
                _ => bail!("the column `{name}` is not what its schema says"),
            }
            open.close()?;
        }
        group.close()?;
        // Before it gets its name: what has it is whole.
        writer.into_inner()?.sync_all()?;
        Ok(())
    }

    /// Reads what [`Columns::write`] wrote.
    pub fn read(file: &Path) -> Result<Self> {
        Self::get(file).with_context(|| format!("reading {}", file.display()))
    }

    fn get(file: &Path) -> Result<Self> {
        let reader = SerializedFileReader::new(fs::File::open(file)?)?;
        let metadata = reader.metadata().file_metadata();
        let pairs = metadata.key_value_metadata().into_iter().flatten();
        let said = pairs.map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default()));
        let mut table = Self {
            columns: Vec::new(),
            said: said.collect(),
        };
        let rows = usize::try_from(metadata.num_rows())?;
        let group = reader.get_row_group(0)?;
        for (at, field) in metadata.schema_descr().columns().iter().enumerate() {
            // Reads all values that are there, and which they are.
            macro_rules! all {
                ($from:expr, $wrap:expr) => {{
                    let (mut values, mut there) = (Vec::new(), Vec::new());
                    $from.read_records(rows, Some(&mut there), None, &mut values)?;
                    let mut values = values.into_iter();
                    let next = |there: i16| (there > 0).then(|| values.next()).flatten().map($wrap);
                    there.into_iter().map(next).collect()
                }};
            }
            let text = |bytes: ByteArray| String::from_utf8_lossy(bytes.data()).into_owned();
            let column = match group.get_column_reader(at)? {
                ColumnReader::BoolColumnReader(mut from) => Column::Flag(all!(from, |v| v)),
                ColumnReader::Int64ColumnReader(mut from) => Column::Int(all!(from, |v| v)),
                ColumnReader::DoubleColumnReader(mut from) => Column::Float(all!(from, |v| v)),
                ColumnReader::ByteArrayColumnReader(mut from) => Column::Text(all!(from, text)),
                _ => bail!(
                    "the column `{}` is of a type that the lab has not",
                    field.name()
                ),
            };
            table.columns.push((field.name().to_owned(), column));
        }
        Ok(table)
    }

    /// A text about the table.
    pub fn said(&self, name: &str) -> Option<&str> {
        let said = self.said.iter().find(|(key, _)| key == name);
        said.map(|(_, text)| text.as_str())
    }

    /// A column of whole numbers.
    pub fn ints(&self, name: &str) -> Result<&[Option<i64>]> {
        match self.columns.iter().find(|(known, _)| known == name) {
            Some((_, Column::Int(values))) => Ok(values),
            _ => bail!("it has no column `{name}` of whole numbers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_survive_the_file_and_a_cut_one_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("t.parquet");
        let numbers = Column::Int(vec![Some(i64::MIN), Some(0), None]);
        let floats = Column::Float(vec![None, Some(0.1), Some(-1e300)]);
        let texts = Column::Text(vec![Some("ä".into()), None, Some(String::new())]);
        let flags = Column::Flag(vec![Some(true), None, Some(false)]);
        let none = Column::Int(vec![None; 3]);
        for columns in [
            vec![("empty", Column::Int(Vec::new()))],
            vec![
                ("int", numbers),
                ("float", floats),
                ("text", texts),
                ("flag", flags),
                ("none", none),
            ],
        ] {
            let columns = columns.into_iter().map(|(name, c)| (name.to_owned(), c));
            let table = Columns {
                columns: columns.collect(),
                said: vec![("run".into(), "{}".into())],
            };
            table.write(&file).expect("written");
            let read = Columns::read(&file).expect("read");
            assert_eq!(read.columns, table.columns);
            assert_eq!((read.said("run"), read.said("walk")), (Some("{}"), None));
        }
        let read = Columns::read(&file).expect("read");
        assert!(read.ints("int").is_ok() && read.ints("text").is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);

        let bytes = fs::read(&file).expect("read");
        fs::write(&file, &bytes[..bytes.len() - 9]).expect("cut");
        let error = format!("{:#}", Columns::read(&file).expect_err("must fail"));
        assert!(error.contains("t.parquet"), "{error}");
    }
}
