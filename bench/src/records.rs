//! Raw records of a run: one row per packet of its schedule, as Parquet, so that
//! anyone can judge the run anew with the tools of their choice.
//!
//! | column | meaning |
//! |---|---|
//! | `sequence` | position in the schedule, from 0 |
//! | `class` | `audio`, `video`, `data` |
//! | `stream` | media stream, or client of a relay |
//! | `adu` | audio packet, video frame or data object it belongs to |
//! | `last` | last packet of its ADU |
//! | `wire_bytes` | bytes with the MAC header |
//! | `created` | ns since the start of the run |
//! | `deadline` | ns since the start of the run |
//! | `arrived` | ns since the start of the run; null = never |
//!
//! The file's key-value metadata name the run: see [`Labels`].

use std::{fs, path::Path, str, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader as _, SerializedFileReader},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    record::RowAccessor as _,
    schema::parser::parse_message_type,
};

use crate::traffic::{Class, Schedule, receiver::Arrival, sender::Sent};

const SCHEMA: &str = "message packets {
    REQUIRED INT32 sequence (INTEGER(32,false));
    REQUIRED BYTE_ARRAY class (STRING);
    REQUIRED INT32 stream (INTEGER(16,false));
    REQUIRED INT32 adu (INTEGER(32,false));
    REQUIRED BOOLEAN last;
    REQUIRED INT32 wire_bytes (INTEGER(32,false));
    REQUIRED INT64 created (INTEGER(64,false));
    REQUIRED INT64 deadline (INTEGER(64,false));
    OPTIONAL INT64 arrived (INTEGER(64,false));
}";

/// One packet of a run. Times are ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position in the schedule.
    pub sequence: u32,
    /// Its class.
    pub class: Class,
    /// Its stream.
    pub stream: u16,
    /// Its ADU.
    pub adu: u32,
    /// Last packet of its ADU.
    pub last: bool,
    /// Bytes with the MAC header.
    pub wire_bytes: u32,
    /// When it was created.
    pub created: u64,
    /// When it was to be there.
    pub deadline: u64,
    /// When it was; `None` = never.
    pub arrived: Option<u64>,
}

impl Row {
    /// Whether it arrived by its deadline.
    pub fn on_time(&self) -> bool {
        self.arrived.is_some_and(|at| at <= self.deadline)
    }
}

/// The rows of a run: of packets that arrived more than once the first arrival.
/// `extra_delay` ns is added to every arrival, see `topology`.
pub fn rows(
    schedule: &Schedule,
    sent: &Sent,
    arrivals: &[Arrival],
    extra_delay: u64,
) -> Result<Vec<Row>> {
    ensure!(
        sent.created.len() == schedule.packets.len(),
        "{} packets were to be sent, {} were",
        schedule.packets.len(),
        sent.created.len()
    );
    let (Some(first), Some(created)) = (schedule.packets.first(), sent.created.first()) else {
        return Ok(Vec::new());
    };
    let start = created - first.at;
    let mut arrived = vec![None; schedule.packets.len()];
    for arrival in arrivals {
        if let Some(slot) = arrived.get_mut(arrival.record.sequence as usize)
            && slot.is_none()
        {
            *slot = Some((arrival.at + extra_delay).saturating_sub(start));
        }
    }
    Ok(schedule
        .packets
        .iter()
        .zip(arrived)
        .zip(0..)
        .map(|((packet, arrived), sequence)| Row {
            sequence,
            class: packet.class,
            stream: packet.stream,
            adu: packet.adu,
            last: packet.last,
            wire_bytes: packet.wire_bytes,
            created: packet.at,
            deadline: packet.at + packet.lifetime,
            arrived,
        })
        .collect())
}

/// Names and values in the file's metadata: `scenario`, `cell`, `queue`, `run`, `seed`,
/// `rate` (bit/s), `owd` (ns, measured on the idle path), `kernel`, `commit`, `command`,
/// `machine`.
pub type Labels = Vec<(String, String)>;

/// Writes `rows` to `file`; it is there as a whole or not at all.
pub fn write(file: &Path, rows: &[Row], labels: &Labels) -> Result<()> {
    let unfinished = file.with_extension("parquet.unfinished");
    put(&unfinished, rows, labels)
        .and_then(|()| Ok(fs::rename(&unfinished, file)?))
        .with_context(|| format!("writing the records {}", file.display()))
}

fn put(file: &Path, rows: &[Row], labels: &Labels) -> Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let labels = labels
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
        .collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(labels))
        .build();
    let mut writer =
        SerializedFileWriter::new(fs::File::create(file)?, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    // Unsigned values stand in signed columns bit by bit, as the format has it.
    let int = |get: fn(&Row) -> u32| rows.iter().map(|r| get(r) as i32).collect::<Vec<_>>();
    let long = |get: fn(&Row) -> u64| rows.iter().map(|r| get(r) as i64).collect::<Vec<_>>();
    let classes: Vec<ByteArray> = rows.iter().map(|r| r.class.name().into()).collect();
    let last: Vec<bool> = rows.iter().map(|r| r.last).collect();
    let arrived: Vec<i64> = rows
        .iter()
        .filter_map(|r| r.arrived)
        .map(|t| t as i64)
        .collect();
    let present: Vec<i16> = rows.iter().map(|r| r.arrived.is_some().into()).collect();
    column::<Int32Type>(&mut group, &int(|r| r.sequence), None)?;
    column::<ByteArrayType>(&mut group, &classes, None)?;
    column::<Int32Type>(&mut group, &int(|r| r.stream.into()), None)?;
    column::<Int32Type>(&mut group, &int(|r| r.adu), None)?;
    column::<BoolType>(&mut group, &last, None)?;
    column::<Int32Type>(&mut group, &int(|r| r.wire_bytes), None)?;
    column::<Int64Type>(&mut group, &long(|r| r.created), None)?;
    column::<Int64Type>(&mut group, &long(|r| r.deadline), None)?;
    column::<Int64Type>(&mut group, &arrived, Some(&present))?;
    group.close()?;
    writer.close()?;
    Ok(())
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, fs::File>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<()> {
    let mut column = group
        .next_column()?
        .context("a column more than the schema has")?;
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()?;
    Ok(())
}

/// Reads what [`write`] wrote.
pub fn read(file: &Path) -> Result<(Vec<Row>, Labels)> {
    get(file).with_context(|| format!("reading the records {}", file.display()))
}

fn get(file: &Path) -> Result<(Vec<Row>, Labels)> {
    let reader = SerializedFileReader::new(fs::File::open(file)?)?;
    let metadata = reader.metadata().file_metadata();
    let columns: Vec<&str> = metadata
        .schema_descr()
        .columns()
        .iter()
        .map(|column| column.name())
        .collect();
    ensure!(
        columns
            == [
                "sequence",
                "class",
                "stream",
                "adu",
                "last",
                "wire_bytes",
                "created",
                "deadline",
                "arrived"
            ],
        "its columns are {columns:?}: not records of this version of the lab"
    );
    let labels = metadata
        .key_value_metadata()
        .into_iter()
        .flatten()
        .map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default()))
        .collect();
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let name = row.get_string(1)?;
        let Some(class) = Class::ALL.into_iter().find(|class| class.name() == name) else {
            bail!("no class `{name}`");
        };
        rows.push(Row {
            sequence: row.get_uint(0)?,
            class,
            stream: row.get_ushort(2)?,
            adu: row.get_uint(3)?,
            last: row.get_bool(4)?,
            wire_bytes: row.get_uint(5)?,
            created: row.get_ulong(6)?,
            deadline: row.get_ulong(7)?,
            // Null is the one value that is no number.
            arrived: row.get_ulong(8).ok(),
        });
    }
    Ok((rows, labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::wire::Record;

    fn row(sequence: u32, arrived: Option<u64>) -> Row {
        Row {
            sequence,
            class: Class::ALL[sequence as usize % 3],
            stream: 65_535,
            adu: u32::MAX,
            last: sequence.is_multiple_of(2),
            wire_bytes: 1026,
            created: u64::from(sequence) * 20_000_000,
            deadline: 5_000_000_000_000,
            arrived,
        }
    }

    #[test]
    fn rows_and_labels_survive_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("run-0.parquet");
        let all: Vec<Row> = (0..1000)
            .map(|n| row(n, (n % 3 != 0).then_some(u64::from(n) << 40)))
            .collect();
        let labels = vec![("cell".to_owned(), "load=1_pfifo-5".to_owned())];
        write(&file, &all, &labels).expect("written");
        let (rows, read_labels) = read(&file).expect("read");
        assert_eq!(rows, all);
        assert!(
            labels.iter().all(|label| read_labels.contains(label)),
            "{read_labels:?}"
        );
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_cut_file_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("run-0.parquet");
        write(&file, &[row(0, None)], &Labels::new()).expect("written");
        let bytes = fs::read(&file).expect("read");
        fs::write(&file, &bytes[..bytes.len() - 9]).expect("cut");
        let error = format!("{:#}", read(&file).expect_err("must fail"));
        assert!(error.contains("run-0.parquet"), "{error}");
    }

    #[test]
    fn an_empty_run_is_a_file_too() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("run-0.parquet");
        write(&file, &[], &Labels::new()).expect("written");
        assert_eq!(read(&file).expect("read").0, []);
    }

    #[test]
    fn times_count_from_the_start_and_the_first_arrival_counts() {
        use crate::traffic::Packet;
        let packet = |at, adu| Packet {
            at,
            lifetime: 200,
            class: Class::Audio,
            priority: Class::Audio.priority(),
            stream: 0,
            adu,
            last: true,
            wire_bytes: 100,
        };
        let schedule = Schedule {
            packets: vec![packet(20, 0), packet(40, 1)],
            duration: 100,
        };
        let sent = Sent {
            created: vec![1020, 1040],
            ..Sent::default()
        };
        let arrival = |sequence, at| Arrival {
            record: Record {
                class: Class::Audio,
                stream: 0,
                last: true,
                sequence,
                adu: 0,
                created: 0,
                deadline: 0,
            },
            at,
        };
        // The last has a sequence that the schedule does not know.
        let arrivals = [arrival(1, 1100), arrival(1, 1101), arrival(9, 1102)];
        let rows = rows(&schedule, &sent, &arrivals, 140).expect("rows");
        assert_eq!(rows[0].arrived, None);
        assert_eq!((rows[1].arrived, rows[1].deadline), (Some(240), 240));
        assert!(rows[1].on_time() && !rows[0].on_time());
    }
}
