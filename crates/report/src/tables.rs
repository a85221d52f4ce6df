//! Tables of a workload, made ready to be printed.

use std::borrow::Cow;

use base::outcome::Table;

/// The table without columns that have no head: what stands in one belongs to the cell on its left.
pub(crate) fn headed(table: &Table) -> Cow<'_, Table> {
    let is_headless = |at: usize| at > 0 && table.head.get(at).is_some_and(|head| head.trim().is_empty());
    if !(0..table.head.len()).any(is_headless) {
        return Cow::Borrowed(table);
    }
    let joined = |row: &Vec<String>| {
        let mut cells: Vec<String> = Vec::new();
        for (at, cell) in row.iter().enumerate() {
            match cells.last_mut().filter(|_| is_headless(at)) {
                None => cells.push(cell.clone()),
                Some(_) if cell.trim().is_empty() => {}
                Some(left) if left.is_empty() => left.clone_from(cell),
                Some(left) => *left += &format!(", {cell}"),
            }
        }
        cells
    };
    let rows = table.rows.iter().map(joined).collect();
    let head =
        (0..table.head.len()).filter(|&at| !is_headless(at)).map(|at| table.head[at].clone()).collect();
    Cow::Owned(Table { title: table.title.clone(), head, rows, notes: table.notes.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_head_stands_with_its_neighbour() {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut table = Table {
            title: "Slowest events".into(),
            head: words(&["event", "took", "", "cause"]),
            rows: vec![words(&["5", "4.86 ms", "complete", "queueing"]), words(&["6", "5 ms", "", "loss"])],
            notes: Vec::new(),
        };
        let shown = headed(&table);
        assert_eq!(shown.head, words(&["event", "took", "cause"]));
        assert_eq!(shown.rows[0], words(&["5", "4.86 ms, complete", "queueing"]));
        assert_eq!(shown.rows[1], words(&["6", "5 ms", "loss"]));
        table.head = words(&["", "took", "ends", "cause"]);
        assert!(matches!(headed(&table), Cow::Borrowed(_)), "the first column names the rows");
    }
}
