package spec

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

// A Machine is what specs depend on besides the sandbox.
type Machine struct {
	CoreMHz int      `json:"coreMHz"`         // clock of one core in MHz
	Swap    bool     `json:"swap,omitempty"`  // the kernel can limit swap
	Binds   []string `json:"binds,omitempty"` // paths of the machine that are mounted inside, read-only
	Lacks   []string `json:"lacks,omitempty"` // limits that can't be set here and are left out
	Views   string   `json:"views,omitempty"` // a part of the names of views

	// Undivided is why commands can't have their own cgroups in a sandbox, nil if they can.
	Undivided   error `json:"-"`
	Launchers   int64 `json:"-"` // if divided: the agent's threads that count against the commands' limit
	SeparateCPU bool  `json:"-"` // if divided: the commands' CPU time is limited separately from the agent's
}

// defaultCoreMHz is used if the kernel doesn't report the clock, as on many virtual ARM machines.
const defaultCoreMHz = 2000

// Inspect inspects this machine.
func Inspect(trees cgroup.Hierarchies) Machine {
	m := Machine{CoreMHz: coreMHz(), Undivided: trees.Divisible(), Launchers: trees.Launchers(), SeparateCPU: trees.SeparateCPU(), Lacks: trees.Lacks(), Views: viewOrigin(trees)}
	if memory, ok := trees.Controller("memory"); ok {
		_, err := os.Stat(filepath.Join(memory.Mount, "memory.memsw.limit_in_bytes"))
		_, noSwap := os.Stat("/proc/swaps")
		m.Swap = err == nil || memory.V2 && noSwap == nil
	}
	for _, path := range matches(hostPaths) {
		// Links are made inside by BuildRoot; their targets are in /usr.
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink == 0 {
			m.Binds = append(m.Binds, path)
		}
	}
	return m
}

// hostPaths are the machine's paths that the image "host" shows. Programs in /usr find libraries,
// alternatives, certificates and settings in the others. None holds secrets: inside, nobody has
// root's rights on the machine, so only world-readable files can be read.
var hostPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives",
	"/etc/ld.so.cache", "/etc/ld.so.conf.d",
	"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki", "/etc/crypto-policies",
	"/etc/java*", "/etc/python*", "/etc/perl", "/etc/php", "/etc/R", "/etc/ghc*", "/etc/maven", "/etc/fpc*",
	"/etc/mono", "/etc/nim", "/etc/groovy", "/etc/racket", "/etc/gnucobol*", "/etc/openmpi", "/var/lib/ghc",
	"/etc/fonts", "/var/cache/fontconfig",
}

// Programs returns those of the named programs that are in the PATH of the image "host". A link
// whose target isn't shown inside doesn't count.
func (m Machine) Programs(names []string) (found []string) {
	for _, name := range names {
		if slices.ContainsFunc(strings.Split(searchPath, ":"), func(dir string) bool { return m.runs(filepath.Join(dir, name)) }) {
			found = append(found, name)
		}
	}
	return found
}

// runs reports whether every user can execute the file at a path of the machine inside a sandbox.
func (m Machine) runs(path string) bool {
	file, err := filepath.EvalSymlinks(path)
	if err != nil || !slices.ContainsFunc(m.Binds, func(bind string) bool { return strings.HasPrefix(file, bind+"/") }) {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o001 != 0
}

// coreMHz returns the clock of one core in MHz: the kernel's maximum, else the present clock, else
// the default.
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
