//! The /24 of 127.0.0.0/10 upwards that a data folder owns, and the addresses of its pods.
//!
//! Every address of 127/8 binds without any set-up, but it is one space for the whole machine
//! (traps.md, "Addresses"): two data folders that picked the same addresses would collide. So each
//! folder takes a /24 of its own, held while a process runs on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::Ipv4Addr,
    os::{linux::net::SocketAddrExt, unix::net},
    path::{Path, PathBuf},
};

/// First and last value of the second octet: 127.64.0.0/10.
const SECOND_OCTETS: std::ops::RangeInclusive<u8> = 64..=127;
/// Number of /24 networks in 127.64.0.0/10.
const NETWORKS: u32 = 64 * 256;
/// Last octets of pods; `.1` is the API server and the node, `.180` to `.254` are Service addresses.
const POD_OCTETS: std::ops::RangeInclusive<u8> = 2..=179;

/// Why a network could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The file that remembers the network cannot be read or written.
    #[error("failed to use {path}: {source}; check that the data folder is writable")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Every network is taken by other running processes.
    #[error("no free /24 is left in 127.64.0.0/10; stop another `coregent up` on this machine")]
    Exhausted,
    /// The lock itself failed, which does not mean that the network is taken.
    #[error("failed to lock a network: {0}")]
    Lock(io::Error),
}

/// A claimed /24; the claim ends when this value is dropped or the process dies.
#[derive(Debug)]
pub struct Network {
    prefix: [u8; 3],
    /// An abstract socket name is exclusive within the network namespace, which is exactly the space
    /// in which addresses of 127/8 collide; it needs no folder that all users may write to, and the
    /// kernel frees it at any kind of death.
    _lock: net::UnixListener,
}

impl Network {
    /// `127.x.y.0`.
    pub fn prefix(&self) -> Ipv4Addr {
        self.address(0)
    }

    /// The address of the API server and of the node itself (`.1`).
    pub fn host(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// First and last address for Services, both included.
    pub fn service_range(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.address(180), self.address(254))
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, last)
    }
}

/// Claims the /24 of `data_dir`: the remembered one, else the one its path hashes to, else the next free.
pub fn claim(data_dir: &Path) -> Result<Network, ClaimError> {
    let file = data_dir.join("network");
    let at = |source| ClaimError::File { path: file.clone(), source };
    let remembered = match std::fs::read_to_string(&file) {
        Ok(text) => parse(text.trim()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(at(e)),
    };
    let first = remembered.map_or_else(|| preferred(data_dir), index);
    for step in 0..NETWORKS {
        let prefix = nth((first + step) % NETWORKS);
        if let Some(lock) = lock(prefix).map_err(ClaimError::Lock)? {
            let network = Network { prefix, _lock: lock };
            if remembered != Some(prefix) {
                std::fs::create_dir_all(data_dir).map_err(at)?;
                std::fs::write(&file, format!("{}/24\n", network.prefix())).map_err(at)?;
            }
            return Ok(network);
        }
    }
    Err(ClaimError::Exhausted)
}

fn lock(prefix: [u8; 3]) -> io::Result<Option<net::UnixListener>> {
    let [a, b, c] = prefix;
    let name = format!("coregent/network/{a}.{b}.{c}");
    match net::UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(name)?) {
        Ok(held) => Ok(Some(held)),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(e) => Err(e),
    }
}

fn preferred(data_dir: &Path) -> u32 {
    let path = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_path_buf());
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    u32::try_from(hasher.finish() % u64::from(NETWORKS)).unwrap_or(0)
}

fn nth(n: u32) -> [u8; 3] {
    let [_, _, high, low] = n.to_be_bytes();
    [127, SECOND_OCTETS.start() + high, low]
}

fn index([_, b, c]: [u8; 3]) -> u32 {
    u32::from(b - SECOND_OCTETS.start()) * 256 + u32::from(c)
}

fn parse(text: &str) -> Option<[u8; 3]> {
    let address: Ipv4Addr = text.strip_suffix("/24")?.parse().ok()?;
    let [a, b, c, d] = address.octets();
    (a == 127 && SECOND_OCTETS.contains(&b) && d == 0).then_some([a, b, c])
}

/// Which pod has which address. An address is kept for the life of a pod uid.
#[derive(Debug, Default)]
pub(crate) struct PodAddresses {
    by_uid: BTreeMap<String, Ipv4Addr>,
    last: u8,
}

impl PodAddresses {
    /// The address of `uid`: the one it has, else `wanted` if free (a pod of a previous run keeps the
    /// address in its status), else the next free one after the last given, so that an address that
    /// clients may still try is reused as late as possible.
    pub fn assign(&mut self, network: Ipv4Addr, uid: &str, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        if let Some(have) = self.by_uid.get(uid) {
            return Some(*have);
        }
        let taken: BTreeSet<Ipv4Addr> = self.by_uid.values().copied().collect();
        let [a, b, c, _] = network.octets();
        let in_range = |ip: &Ipv4Addr| {
            let [x, y, z, last] = ip.octets();
            [x, y, z] == [a, b, c] && POD_OCTETS.contains(&last)
        };
        let free = wanted.filter(|ip| in_range(ip) && !taken.contains(ip)).or_else(|| {
            let after = POD_OCTETS.filter(|octet| *octet > self.last);
            let before = POD_OCTETS.filter(|octet| *octet <= self.last);
            after.chain(before).map(|octet| Ipv4Addr::new(a, b, c, octet)).find(|ip| !taken.contains(ip))
        })?;
        self.last = free.octets()[3];
        self.by_uid.insert(uid.to_owned(), free);
        Some(free)
    }

    /// Gives the address of `uid` back.
    pub fn release(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_network_and_a_second_holder_gets_another() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path()).unwrap();
        let second = claim(folder.path()).unwrap();
        assert_ne!(first.prefix(), second.prefix());
        let remembered = second.prefix();
        drop((first, second));
        assert_eq!(claim(folder.path()).unwrap().prefix(), remembered);
    }

    #[test]
    fn a_damaged_network_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("network"), "10.0.0.0/24").unwrap();
        let network = claim(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("network")).unwrap();
        assert_eq!(text, format!("{}/24\n", network.prefix()));
    }

    #[test]
    fn index_and_nth_are_inverse_over_the_whole_range() {
        for n in 0..NETWORKS {
            assert_eq!(index(nth(n)), n);
        }
    }

    #[test]
    fn pod_addresses_are_kept_per_uid_and_reused_as_late_as_possible() {
        let network = Ipv4Addr::new(127, 70, 1, 0);
        let mut addresses = PodAddresses::default();
        let a = addresses.assign(network, "a", None).unwrap();
        assert_eq!(addresses.assign(network, "a", None), Some(a));
        addresses.release("a");
        assert_ne!(addresses.assign(network, "b", None), Some(a), "a just freed address waits its turn");
        assert_eq!(addresses.assign(network, "c", Some(a)), Some(a), "a pod of a previous run gets its own back");
        let foreign = Ipv4Addr::new(127, 70, 2, 9);
        assert_ne!(addresses.assign(network, "d", Some(foreign)), Some(foreign));
    }

    #[test]
    fn pod_addresses_run_out_with_none() {
        let network = Ipv4Addr::new(127, 70, 1, 0);
        let mut addresses = PodAddresses::default();
        for n in 0..178 {
            assert!(addresses.assign(network, &n.to_string(), None).is_some());
        }
        assert_eq!(addresses.assign(network, "one too many", None), None);
    }
}
