//! Which programs of this machine stand for which container image.
//!
//! Nothing is pulled: `postgres:15` is the PostgreSQL 15 that is installed here. What is missing is
//! said with the command that installs it.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// Where our own programs appear in a container. The container's root is a tmpfs, so that this mount
/// point can be made by an ordinary user; one below `/usr` could not (traps.md, "Mount points").
pub(crate) const OWN_BIN: &str = "/coregent/bin";
/// Our own binary in every container.
const SHARED_BINARY: &str = "/coregent/bin/coregent";
/// Tells `coregent agent install` of it: see there.
const SHARED_BINARY_VARIABLE: &str = "COREGENT_SHARED_BINARY";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const POSTGRES_ENTRYPOINT: &str = include_str!("image_map/postgres-entrypoint");

/// What a container of an image gets beyond the pod's own specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The reference as the pod gave it.
    pub reference: String,
    /// `PATH` unless the pod sets one.
    pub path: String,
    /// Run when the pod has no `command`; `args` or [`Image::default_args`] follow it.
    pub entrypoint: Vec<String>,
    /// Used when the pod has neither `command` nor `args`.
    pub default_args: Vec<String>,
    /// Who runs it unless the pod's `securityContext` says.
    pub user: ImageUser,
    /// Paths of this machine that the container sees: source, target, read-only.
    pub binds: Vec<Bind>,
    /// Files of our own that are written for the container: target, content.
    pub files: Vec<(PathBuf, String)>,
    /// Empty writable folders that belong to the container alone.
    pub scratch: Vec<PathBuf>,
    /// Environment, before the pod's own.
    pub env: BTreeMap<String, String>,
    /// The signal that asks for a clean stop.
    pub stop_signal: StopSignal,
    /// Working folder unless the pod sets one.
    pub working_dir: PathBuf,
}

/// The signal that asks a program for a clean stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum StopSignal {
    /// The usual one.
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    /// PostgreSQL's fast shutdown: SIGTERM would wait for every session to end.
    #[serde(rename = "SIGINT")]
    Int,
    /// Some web servers.
    #[serde(rename = "SIGQUIT")]
    Quit,
}

impl StopSignal {
    /// Its number on Linux.
    pub fn number(self) -> i32 {
        match self {
            Self::Int => 2,
            Self::Quit => 3,
            Self::Term => 15,
        }
    }
}

/// A path of this machine in a container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Bind {
    /// On this machine.
    pub source: PathBuf,
    /// In the container.
    pub target: PathBuf,
    /// Programs and libraries should be.
    #[serde(default)]
    pub read_only: bool,
}

/// The user of an image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Login name, for programs that look themselves up (initdb does).
    pub name: String,
    /// `HOME`.
    pub home: PathBuf,
}

impl ImageUser {
    fn root() -> Self {
        Self { uid: 0, gid: 0, name: "root".into(), home: "/root".into() }
    }
}

/// Why an image does not resolve; the message goes into the pod's status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The image map has no such image.
    #[error(
        "image {image:?} is not in the image map of this node, which runs programs of this machine and pulls nothing; \
         known are coregent, postgres, etcd, redis, busybox, debian{}; add it to {}",
        if own.is_empty() { String::new() } else { format!(", {own}") },
        file.display()
    )]
    Unknown {
        /// What the pod asked for.
        image: String,
        /// The images of the user's own map.
        own: String,
        /// The user's map.
        file: PathBuf,
    },
    /// The image is known, the program is not there.
    #[error("image map: {image:?} needs {program}, which is not installed; install it with `{install}`")]
    NotInstalled {
        /// What the pod asked for.
        image: String,
        /// The program that was looked for.
        program: String,
        /// A line to paste.
        install: String,
    },
}

/// Why the user's image map was refused.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It cannot be read.
    #[error("failed to read the image map {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what was expected.
    #[error("the image map {path} is not valid: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
}

/// An entry of the user's `images.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    /// A name (`redis`, any tag) or a name with a tag (`redis:7`).
    image: String,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    entrypoint: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    user: Option<ImageUser>,
    #[serde(default)]
    binds: Vec<Bind>,
    #[serde(default)]
    scratch: Vec<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stop_signal: StopSignal,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    images: Vec<Entry>,
}

/// The image map: built-in images under the user's own.
#[derive(Clone, Debug)]
pub struct ImageMap {
    file: PathBuf,
    own: Vec<Entry>,
    self_exe: PathBuf,
    /// Where Debian's packages put PostgreSQL; another place in tests.
    postgres_root: PathBuf,
    /// Where Debian's packages put other programs; another place in tests.
    debian_bin: PathBuf,
}

impl ImageMap {
    /// The map of a data folder: built-in images and those of `<data_dir>/images.yaml`, if there is one.
    /// `self_exe` is what the image `coregent` stands for.
    pub fn load(data_dir: &Path, self_exe: &Path) -> Result<Self, MapError> {
        let file = data_dir.join("images.yaml");
        let own = match std::fs::read_to_string(&file) {
            Ok(text) => {
                serde_saphyr::from_str::<File>(&text)
                    .map_err(|e| MapError::Invalid { path: file.clone(), reason: e.to_string() })?
                    .images
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(MapError::Read { path: file, source }),
        };
        Ok(Self {
            file,
            own,
            self_exe: self_exe.to_owned(),
            postgres_root: "/usr/lib/postgresql".into(),
            debian_bin: "/usr/bin".into(),
        })
    }

    /// What `image` stands for. Every container finds our own binary at [`SHARED_BINARY`], so that one copy of it on
    /// disk and in memory serves them all.
    pub fn resolve(&self, image: &str) -> Result<Image, ImageError> {
        let mut found = self.look_up(image)?;
        let own = Bind { source: self.self_exe.clone(), target: SHARED_BINARY.into(), read_only: true };
        found.binds.insert(0, own);
        Ok(found)
    }

    fn look_up(&self, image: &str) -> Result<Image, ImageError> {
        let (name, tag) = split(image);
        if let Some(entry) = self.own.iter().find(|e| e.image == format!("{name}:{tag}") || e.image == name) {
            return Ok(own_image(image, entry));
        }
        match name.rsplit('/').next().unwrap_or(name) {
            "coregent" => Ok(coregent(image)),
            "postgres" | "postgresql" => self.postgres(image, tag),
            "etcd" => self.of_debian(image, "etcd", "etcd-server etcd-client", etcd),
            "redis" => self.of_debian(image, "redis-server", "redis-server redis-tools", redis),
            "busybox" | "debian" | "ubuntu" | "alpine" | "bash" if !name.contains('/') => Ok(shell(image)),
            _ => Err(ImageError::Unknown {
                image: image.into(),
                own: self.own.iter().map(|e| e.image.as_str()).collect::<Vec<_>>().join(", "),
                file: self.file.clone(),
            }),
        }
    }

    fn postgres(&self, image: &str, tag: &str) -> Result<Image, ImageError> {
        let major: String = tag.chars().take_while(char::is_ascii_digit).collect();
        let major = if major.is_empty() { self.newest_postgres().unwrap_or_else(|| "15".into()) } else { major };
        let bin = self.postgres_root.join(&major).join("bin");
        let server = bin.join("postgres");
        if !server.exists() {
            return Err(ImageError::NotInstalled {
                image: image.into(),
                program: server.display().to_string(),
                install: format!("sudo apt-get install postgresql-{major}"),
            });
        }
        let entrypoint = Path::new(OWN_BIN).join("postgres-entrypoint");
        Ok(Image {
            path: format!("{}:{OWN_BIN}:{DEFAULT_PATH}", bin.display()),
            entrypoint: vec![entrypoint.display().to_string()],
            default_args: vec!["postgres".into()],
            user: ImageUser { uid: 999, gid: 999, name: "postgres".into(), home: "/var/lib/postgresql".into() },
            files: vec![(entrypoint, POSTGRES_ENTRYPOINT.to_owned())],
            scratch: vec!["/var/lib/postgresql".into(), "/var/run/postgresql".into()],
            env: BTreeMap::from([
                ("PGDATA".into(), "/var/lib/postgresql/data".into()),
                ("PG_MAJOR".into(), major),
                ("LANG".into(), "C.UTF-8".into()),
            ]),
            stop_signal: StopSignal::Int,
            ..plain(image)
        })
    }

    /// A program of which Debian has one version, which runs whatever the tag asks for.
    fn of_debian(
        &self,
        image: &str,
        program: &str,
        packages: &str,
        found: fn(&str) -> Image,
    ) -> Result<Image, ImageError> {
        let file = self.debian_bin.join(program);
        if file.exists() {
            return Ok(found(image));
        }
        Err(ImageError::NotInstalled {
            image: image.into(),
            program: file.display().to_string(),
            install: format!("sudo apt-get install {packages}"),
        })
    }

    fn newest_postgres(&self) -> Option<String> {
        let versions = std::fs::read_dir(&self.postgres_root).ok()?;
        let majors = versions.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
        majors.max().map(|major| major.to_string())
    }
}

fn plain(image: &str) -> Image {
    Image {
        reference: image.into(),
        path: format!("{OWN_BIN}:{DEFAULT_PATH}"),
        entrypoint: Vec::new(),
        default_args: Vec::new(),
        user: ImageUser::root(),
        binds: Vec::new(),
        files: Vec::new(),
        scratch: Vec::new(),
        env: BTreeMap::new(),
        stop_signal: StopSignal::Term,
        working_dir: "/".into(),
    }
}

fn coregent(image: &str) -> Image {
    Image {
        entrypoint: vec![SHARED_BINARY.into()],
        env: BTreeMap::from([(SHARED_BINARY_VARIABLE.into(), SHARED_BINARY.into())]),
        ..plain(image)
    }
}

fn shell(image: &str) -> Image {
    Image { default_args: vec!["/bin/sh".into()], ..plain(image) }
}

fn etcd(image: &str) -> Image {
    Image { default_args: vec!["etcd".into()], ..plain(image) }
}

/// As the official image: its user, its folder.
fn redis(image: &str) -> Image {
    Image {
        default_args: vec!["redis-server".into()],
        user: ImageUser { uid: 999, gid: 999, name: "redis".into(), home: "/data".into() },
        scratch: vec!["/data".into()],
        working_dir: "/data".into(),
        ..plain(image)
    }
}

fn own_image(image: &str, entry: &Entry) -> Image {
    let mut path = entry.path.clone();
    path.push(DEFAULT_PATH.into());
    Image {
        path: path.join(":"),
        entrypoint: entry.entrypoint.clone(),
        default_args: entry.args.clone(),
        user: entry.user.clone().unwrap_or_else(ImageUser::root),
        binds: entry.binds.clone(),
        scratch: entry.scratch.clone(),
        env: entry.env.clone(),
        stop_signal: entry.stop_signal,
        ..plain(image)
    }
}

/// Name and tag of a reference, without digest and without the registry that is the default.
fn split(image: &str) -> (&str, &str) {
    let image = image.split('@').next().unwrap_or(image);
    // A colon before the last slash belongs to a registry's port.
    let (name, tag) = match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    };
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    (name.strip_prefix("library/").unwrap_or(name), tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(yaml: &str) -> (tempfile::TempDir, ImageMap) {
        let dir = tempfile::tempdir().unwrap();
        if !yaml.is_empty() {
            std::fs::write(dir.path().join("images.yaml"), yaml).unwrap();
        }
        let mut map = ImageMap::load(dir.path(), Path::new("/opt/build/coregent")).unwrap();
        map.postgres_root = dir.path().join("pg");
        for major in ["14", "15"] {
            std::fs::create_dir_all(map.postgres_root.join(major).join("bin")).unwrap();
            std::fs::write(map.postgres_root.join(major).join("bin/postgres"), "").unwrap();
        }
        (dir, map)
    }

    #[test]
    fn references_are_split_as_registries_do() {
        for (reference, expected) in [
            ("postgres", ("postgres", "latest")),
            ("postgres:15.4-alpine", ("postgres", "15.4-alpine")),
            ("docker.io/library/postgres:15", ("postgres", "15")),
            ("registry:5000/team/app", ("registry:5000/team/app", "latest")),
            ("registry:5000/team/app:v1@sha256:00", ("registry:5000/team/app", "v1")),
        ] {
            assert_eq!(split(reference), expected, "{reference}");
        }
    }

    #[test]
    fn postgres_is_found_by_its_major_version_in_every_spelling() {
        let (_dir, map) = map("");
        for (reference, major) in
            [("postgres:15", "15"), ("postgres:14.9-bookworm", "14"), ("mirror/postgres:15", "15"), ("postgres", "15")]
        {
            assert_eq!(map.resolve(reference).unwrap().env["PG_MAJOR"], major, "{reference}");
        }
    }

    #[test]
    fn a_missing_version_says_what_to_install() {
        let (_dir, map) = map("");
        let message = map.resolve("postgres:17").unwrap_err().to_string();
        assert!(message.contains("image map"), "{message}");
        assert!(message.contains("apt-get install postgresql-17"), "{message}");
    }

    #[test]
    fn etcd_and_redis_are_those_of_debian_and_their_packages_are_named_where_they_lack() {
        let (dir, mut map) = map("");
        map.debian_bin = dir.path().join("bin");
        std::fs::create_dir_all(&map.debian_bin).unwrap();
        for (reference, program, packages) in [
            ("quay.io/coreos/etcd:v3.4.23", "etcd", "apt-get install etcd-server etcd-client"),
            ("redis:7", "redis-server", "apt-get install redis-server redis-tools"),
        ] {
            let message = map.resolve(reference).unwrap_err().to_string();
            assert!(message.contains(packages) && message.contains(reference), "{message}");
            std::fs::write(map.debian_bin.join(program), "").unwrap();
            assert_eq!(map.resolve(reference).unwrap().default_args, [program]);
        }
    }

    #[test]
    fn an_unknown_image_names_the_map_and_what_it_knows() {
        let (dir, map) = map("images: [{image: valkey}]");
        let message = map.resolve("nginx:1").unwrap_err().to_string();
        assert!(message.contains("nginx:1") && message.contains("valkey"), "{message}");
        assert!(message.contains(&dir.path().join("images.yaml").display().to_string()), "{message}");
    }

    #[test]
    fn the_users_map_goes_before_the_built_in_one() {
        let (_dir, map) = map("
images:
- image: postgres:15
  path: [/srv/pg/bin]
  entrypoint: [/srv/pg/bin/postgres]
  args: [-D, /data]
  user: {uid: 70, gid: 70, name: pg, home: /data}
  stopSignal: SIGINT
  binds: [{source: /srv/pg, target: /srv/pg, readOnly: true}]
");
        let image = map.resolve("postgres:15").unwrap();
        assert_eq!(image.entrypoint, ["/srv/pg/bin/postgres"]);
        assert_eq!(image.user.uid, 70);
        assert_eq!(map.resolve("postgres:14").unwrap().user.uid, 999);
    }

    #[test]
    fn a_wrong_image_map_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("images.yaml"), "images: [{image: a, entripoint: [b]}]").unwrap();
        let error = ImageMap::load(dir.path(), Path::new("/x")).unwrap_err().to_string();
        assert!(error.contains("images.yaml") && error.contains("entripoint"), "{error}");
    }
}
