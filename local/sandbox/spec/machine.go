package spec

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

// A Machine is what specs need to know about where they will run.
type Machine struct {
	CoreMHz int      `json:"coreMHz"`         // the clock of one core
	Swap    bool     `json:"swap,omitempty"`  // the kernel can limit swap
	Binds   []string `json:"binds,omitempty"` // what of the machine's is shown inside, at the same place, read-only
	Lacks   []string `json:"lacks,omitempty"` // limits that can't be set, and aren't

	// Undivided is why commands can't have cgroups of their own in a sandbox;
	// nil: they can.
	Undivided error `json:"-"`
	Launchers int64 `json:"-"` // how many of the agent's threads count among the commands then
	ApartCPU  bool  `json:"-"` // their processor time is limited apart from the agent's then
}

// defaultCoreMHz stands in where the kernel doesn't tell the clock, as on
// many virtual ARM machines.
const defaultCoreMHz = 2000

// Inspect looks at this machine.
func Inspect(trees cgroup.Hierarchies) Machine {
	m := Machine{CoreMHz: coreMHz(), Undivided: trees.Divisible(), Launchers: trees.Launchers(), ApartCPU: trees.ApartCPU(), Lacks: trees.Lacks()}
	if memory, ok := trees.Controller("memory"); ok {
		_, err := os.Stat(filepath.Join(memory.Mount, "memory.memsw.limit_in_bytes"))
		_, noSwap := os.Stat("/proc/swaps")
		m.Swap = err == nil || memory.V2 && noSwap == nil
	}
	for _, pattern := range hostPaths {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			// A link is one inside too (BuildRoot makes it); its target is in /usr.
			if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink == 0 {
				m.Binds = append(m.Binds, path)
			}
		}
	}
	return m
}

// hostPaths are what the image "host" shows of the machine. Programs in /usr
// find their libraries, alternatives, certificates and settings through the
// rest. None holds a secret: only what everybody may read can be read inside,
// as root there is nobody here.
var hostPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives",
	"/etc/ld.so.cache", "/etc/ld.so.conf.d",
	"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki", "/etc/crypto-policies",
	"/etc/java*", "/etc/python*", "/etc/perl", "/etc/php", "/etc/R", "/etc/ghc*", "/etc/maven", "/etc/fpc*",
}

// Programs returns those of the named programs that are in the PATH of the image "host".
// A link to a place that isn't shown inside leads nowhere there.
func (m Machine) Programs(names []string) (found []string) {
	for _, name := range names {
		if slices.ContainsFunc(strings.Split(searchPath, ":"), func(dir string) bool { return m.runs(filepath.Join(dir, name)) }) {
			found = append(found, name)
		}
	}
	return found
}

// runs reports whether everybody can run the file at a path of the machine, inside.
func (m Machine) runs(path string) bool {
	file, err := filepath.EvalSymlinks(path)
	if err != nil || !slices.ContainsFunc(m.Binds, func(bind string) bool { return strings.HasPrefix(file, bind+"/") }) {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o001 != 0
}

func coreMHz() int {
	if text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); err == nil {
		if kHz, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && kHz >= 1000 {
			return kHz / 1000
		}
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "cpu MHz" {
			continue
		}
		if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && mhz >= 1 {
			return int(mhz)
		}
	}
	return defaultCoreMHz
}
