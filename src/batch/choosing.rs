//! Which tasks are worked on?

use super::{
    numbers::{Numbers, Shard},
    sample::Sample,
    suite::Suite,
};
use crate::{config::Workshop, exit::Trouble, plan, store::Unreadable};
use kernelbench::{Task, load};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// What narrows a folder's tasks down.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Of these levels.
    pub levels: Option<Numbers>,
    /// With these numbers in their level.
    pub ids: Option<Numbers>,
    /// Whose path holds one of these words, in any case.
    pub matching: Vec<String>,
    /// Whose path holds none of these.
    pub exclude: Vec<String>,
    /// In this suite.
    pub suite: Option<Suite>,
    /// Not in this suite.
    pub except: Option<Suite>,
    /// Of what is left, a sample.
    pub sample: Option<Sample>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Of what is left, this part.
    pub shard: Option<Shard>,
}

/// The tasks of a batch to come.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Each with the file or folder that it was read from, in the order in which their turn comes.
    pub tasks: Vec<(PathBuf, Task)>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Reads the chosen tasks under this path: a folder of KernelBench, one of its levels, a folder of kernel contexts, or one
/// task. What cannot be read does not keep the others from being read.
///
/// # Errors
///
/// If there is no such folder, it holds no task, none is left after the choice, or they need different workshops.
pub fn choose(path: &Path, choice: &Choice) -> Result<Chosen, Trouble> {
    let mut found = find(path)?;
    let all = found.len();
    found.sort_by_key(|place| (place.level, place.number, place.path.clone()));
    found.retain(|place| choice.wants(place));
    if let Some(sample) = choice.sample {
        found = sample.draw(found, |place| {
            let name = place.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (place.level, name)
        });
    }
    let mut chosen = read(found, choice);
    if let Some(shard) = choice.shard {
        let mut places = 0..;
        chosen.tasks.retain(|_| places.next().is_some_and(|place| shard.holds(place)));
    }
    chosen.tasks.truncate(choice.limit.unwrap_or(usize::MAX));
    if chosen.tasks.is_empty() {
        let reasons: Vec<String> =
            chosen.unreadable.iter().take(5).map(|one| format!("\n  {}: {}", one.path, one.why)).collect();
        let why = format!("no task is left of {all} in {}{}", path.display(), reasons.concat());
        return Err(Trouble::usage(why));
    }
    one_kind(&chosen)?;
    Ok(chosen)
}

/// What looks like a task.
struct Place {
    path: PathBuf,
    level: Option<u8>,
    number: Option<u32>,
}

impl Place {
    fn problem(path: PathBuf, level: Option<u8>) -> Self {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self { number: stem.split('_').next().and_then(|first| first.parse().ok()), path, level }
    }
}

fn find(path: &Path) -> Result<Vec<Place>, Trouble> {
    let none = |what: &str| {
        Trouble::usage(format!(
            "{}: {what}; expected a folder of KernelBench (level1, level2, ...), one of its levels, a folder whose \
             folders hold a task.toml, or a task",
            path.display()
        ))
    };
    if path.is_file() || path.join("task.toml").is_file() {
        let level = path.parent().and_then(level_of);
        return Ok(vec![Place { level, ..Place::problem(path.to_owned(), level) }]);
    }
    if !path.is_dir() {
        return Err(none("there is no such file or folder"));
    }
    let within = [path.to_owned(), path.join("KernelBench")];
    let mut found: Vec<Place> =
        within.iter().flat_map(|folder| entries(folder)).flat_map(|level| problems(&level)).collect();
    if found.is_empty() && level_of(path).is_some() {
        found = problems(path);
    }
    if found.is_empty() {
        let contexts = entries(path).into_iter().filter(|folder| folder.join("task.toml").is_file());
        found = contexts.map(|path| Place { path, level: None, number: None }).collect();
    }
    if found.is_empty() {
        found = python_files(path).map(|file| Place::problem(file, None)).collect();
    }
    if found.is_empty() { Err(none("there is no task in this folder")) } else { Ok(found) }
}

/// The problems in a level's folder; none in any other.
fn problems(folder: &Path) -> Vec<Place> {
    let Some(level) = level_of(folder) else { return vec![] };
    python_files(folder).map(|file| Place::problem(file, Some(level))).collect()
}

fn level_of(folder: &Path) -> Option<u8> {
    let whole = std::path::absolute(folder).ok()?;
    whole.file_name()?.to_str()?.strip_prefix("level")?.parse().ok()
}

fn python_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_problem = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "py")
            && path.file_name().is_some_and(|name| name != "__init__.py")
    };
    entries(folder).into_iter().filter(move |path| is_problem(path))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

impl Chosen {
    /// The same, with the settings' arithmetic and precision of problems.
    #[must_use]
    pub fn with_arithmetic(mut self, settings: &Workshop) -> Self {
        self.tasks = self.tasks.into_iter().map(|(path, task)| (path, plan::with_arithmetic(task, settings))).collect();
        self
    }
}

impl Choice {
    fn wants(&self, place: &Place) -> bool {
        let named = place.path.to_string_lossy().to_lowercase();
        let tail: Vec<&str> = named.rsplit('/').take(2).collect();
        let holds = |word: &String| tail.iter().any(|part| part.contains(&word.to_lowercase()));
        let of = |numbers: &Option<Numbers>, number: Option<u32>| {
            numbers.as_ref().is_none_or(|numbers| number.is_some_and(|number| numbers.holds(number)))
        };
        of(&self.levels, place.level.map(u32::from))
            && of(&self.ids, place.number)
            && self.suite.as_ref().is_none_or(|suite| suite.holds(place.level, place.number))
            && self.except.as_ref().is_none_or(|suite| !suite.holds(place.level, place.number))
            && (self.matching.is_empty() || self.matching.iter().any(holds))
            && !self.exclude.iter().any(holds)
    }
}

fn read(found: Vec<Place>, choice: &Choice) -> Chosen {
    let sound = choice.suite.as_ref().is_some_and(|suite| suite.sound);
    let (mut tasks, mut unreadable): (Vec<(PathBuf, Task)>, _) = (vec![], vec![]);
    let mut names: HashMap<String, PathBuf> = HashMap::new();
    for Place { path, .. } in found {
        let mut cannot = |why: String| unreadable.push(Unreadable { path: path.display().to_string(), why });
        match load::task(&path) {
            Err(error) => cannot(error.to_string()),
            Ok(task) if sound && task.problem().is_some_and(|problem| !problem.labels.is_empty()) => {}
            Ok(task) => {
                if let Some(other) = names.get(&task.name) {
                    cannot(format!("{} has the name {} already", other.display(), task.name));
                } else {
                    names.insert(task.name.clone(), path.clone());
                    tasks.push((path, task));
                }
            }
        }
    }
    Chosen { tasks, unreadable }
}

/// A batch has one kind of workshop.
fn one_kind(chosen: &Chosen) -> Result<(), Trouble> {
    let kind = |task: &Task| (task.problem().is_some(), task.is_cuda());
    let Some((first, rest)) = chosen.tasks.split_first() else { return Ok(()) };
    match rest.iter().find(|(_, task)| kind(task) != kind(&first.1)) {
        None => Ok(()),
        Some((other, _)) => Err(Trouble::usage(format!(
            "{} and {} need different workshops: choose one kind with --match or --exclude",
            first.0.display(),
            other.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PROBLEM: &str =
        "class Model(nn.Module): pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n";

    fn kernelbench() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (level, number, text) in [
            (1, 1, PROBLEM),
            (1, 2, PROBLEM),
            (1, 10, PROBLEM),
            (1, 19, PROBLEM),
            (1, 3, "print(1)\n"),
            (2, 1, PROBLEM),
        ] {
            let level = folder.path().join(format!("KernelBench/level{level}"));
            fs::create_dir_all(&level).unwrap();
            fs::write(level.join(format!("{number}_Some_kernel.py")), text).unwrap();
        }
        folder
    }

    fn names(path: &Path, choice: &Choice) -> Vec<String> {
        choose(path, choice).unwrap().tasks.into_iter().map(|(_, task)| task.name).collect()
    }

    #[test]
    fn a_folder_of_kernelbench_is_read_by_level_and_number_and_what_is_broken_is_told() {
        let folder = kernelbench();
        let chosen = choose(folder.path(), &Choice::default()).unwrap();
        let found: Vec<_> = chosen.tasks.iter().map(|(_, task)| task.name.as_str()).collect();
        assert_eq!(
            found,
            [
                "level1-1_Some_kernel",
                "level1-2_Some_kernel",
                "level1-10_Some_kernel",
                "level1-19_Some_kernel",
                "level2-1_Some_kernel"
            ]
        );
        let [broken] = &chosen.unreadable[..] else { panic!("{:?}", chosen.unreadable) };
        assert!(broken.path.ends_with("3_Some_kernel.py") && broken.why.contains("no `class Model`"), "{broken:?}");
    }

    #[test]
    fn every_way_of_choosing_narrows_down() {
        let folder = kernelbench();
        let choice = || Choice { levels: "1".parse().ok(), ..Choice::default() };
        assert_eq!(names(folder.path(), &choice()).len(), 4);
        assert_eq!(names(&folder.path().join("KernelBench/level1"), &Choice::default()).len(), 4);
        assert_eq!(names(folder.path(), &Choice { ids: "2-10".parse().ok(), ..choice() }).len(), 2);
        assert_eq!(names(folder.path(), &Choice { matching: vec!["10_some".into()], ..choice() }).len(), 1);
        assert_eq!(names(folder.path(), &Choice { exclude: vec!["10_".into()], ..choice() }).len(), 3);
        assert_eq!(names(folder.path(), &Choice { limit: Some(2), ..choice() }).len(), 2);
        assert_eq!(names(folder.path(), &Choice { shard: "2/3".parse().ok(), ..choice() }), ["level1-2_Some_kernel"]);
        let suite = |name| Suite::named(name).ok();
        assert_eq!(names(folder.path(), &Choice { suite: suite("dstar"), ..choice() }), ["level1-10_Some_kernel"]);
        assert_eq!(names(folder.path(), &Choice { except: suite("dstar"), ..choice() }).len(), 3);
        let sample = Some(Sample { share: 0.5, seed: 1 });
        assert_eq!(names(folder.path(), &Choice { sample, ids: "1-10".parse().ok(), ..choice() }).len(), 2);
        // Nothing is known against 1, 2 and 10; 19 lets its own input pass.
        assert_eq!(names(folder.path(), &Choice { suite: suite("sound"), ..choice() }).len(), 3);
    }

    #[test]
    fn a_choice_of_nothing_says_why() {
        let folder = kernelbench();
        let choice = Choice { ids: "3".parse().ok(), ..Choice::default() };
        let told = choose(folder.path(), &choice).unwrap_err().message;
        assert!(told.contains("3_Some_kernel.py: ") && told.contains("no `class Model`"), "{told}");
        assert!(choose(&folder.path().join("nowhere"), &choice).unwrap_err().message.contains("no such file"));
    }
}
