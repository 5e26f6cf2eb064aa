package warm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// A Command is a command that a zygote can start.
type Command struct {
	form string // how the interpreter gets its program: "c", "m", "stdin" or "file"
	file string // the interpreter's path
}

// Command returns a command for the zygote or, if it must start cold, the reason for people. Loaded
// reports whether the runner has a zygote.
func (w *Warmer) Command(start agent.Start, dir string, candidates []string) (c Command, cold string, loaded bool) {
	z := w.zygote.Load()
	if z == nil {
		return c, "", false
	}
	c, cold = z.command(start, dir, candidates)
	return c, cold, true
}

func (z *zygote) command(start agent.Start, dir string, candidates []string) (c Command, cold string) {
	if len(candidates) == 0 || !sameFile(candidates[0], z.path) {
		return c, "a program other than the interpreter"
	}
	if start.Privileged {
		return c, "a privileged command"
	}
	c.file = candidates[0]
	var script string
	if c.form, script, cold = form(start); cold != "" {
		return c, cold
	}
	if cold = z.variables(start.Env); cold != "" {
		return c, cold
	}
	if cold = z.userSite(start.Env); cold != "" {
		return c, cold
	}
	if c.form == "file" {
		if !filepath.IsAbs(script) {
			script = filepath.Join(dir, script)
		}
		file, err := filepath.EvalSymlinks(script)
		if err != nil {
			return c, "a program that can't be read"
		}
		var stat unix.Stat_t
		if unix.Stat(file, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
			return c, "a program that isn't a regular file"
		}
		// The interpreter searches the directory of the program's file after resolving links.
		dir = filepath.Dir(file)
	}
	return c, z.shadowed(dir)
}

// form returns how the interpreter gets its program, and the program's file.
func form(start agent.Start) (form, script, cold string) {
	argv := start.Argv[1:]
	switch {
	case len(argv) == 0 || argv[0] == "-":
		if start.Terminal != nil {
			return "", "", "an interactive interpreter"
		}
		return "stdin", "", ""
	case argv[0] == "-c" || argv[0] == "-m":
		if len(argv) < 2 {
			return "", "", "an option without its argument"
		}
		return argv[0][1:], "", ""
	case strings.HasPrefix(argv[0], "-"):
		return "", "", "the interpreter's option " + shorten(argv[0])
	case !strings.HasSuffix(argv[0], ".py"):
		return "", "", "the program's name doesn't end in .py" // it could be an archive or compiled
	}
	return "file", argv[0], ""
}

func shorten(s string) string {
	const most = 32
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// threadVariables set how many threads numeric libraries start when they are loaded.
var threadVariables = []string{"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "GOTO_NUM_THREADS"}

// searched reports whether a variable names a directory that is searched for modules first.
func searched(name string) bool { return name == "PYTHONPATH" || name == "PYTHONUSERBASE" }

// loading reports whether an interpreter, its libraries or its modules read a variable when they
// are loaded.
func loading(name string) bool {
	for _, prefix := range []string{"PYTHON", "LC_", "LD_", "MALLOC_", "GLIBC_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "LANG" || name == "LANGUAGE"
}

// variables returns the reason why a command's environment needs a new interpreter: a variable that
// the zygote has read has another value. It is "" if there is none.
func (z *zygote) variables(env []string) string {
	of := func(list []string) map[string]string {
		m := map[string]string{}
		for _, v := range list {
			name, value, _ := strings.Cut(v, "=")
			m[name] = value
		}
		return m
	}
	its, ours := of(env), of(z.wanted.Env)
	for name, value := range its {
		switch {
		case slices.Contains(threadVariables, name) && value != "1" && value != ours[name]:
			return "the variable " + name + " isn't 1"
		case searched(name): // the directory's contents may change
			return "the variable " + name
		case loading(name):
			if had, ok := ours[name]; !ok || had != value {
				return "the variable " + name
			}
		}
	}
	for name := range ours {
		if _, ok := its[name]; loading(name) && !ok {
			return "without the variable " + name
		}
	}
	return ""
}

// userSite returns a reason if the user has a directory of packages, which is searched before
// others.
func (z *zygote) userSite(env []string) string {
	for _, v := range env {
		if home, ok := strings.CutPrefix(v, "HOME="); ok {
			if _, err := os.Lstat(filepath.Join(home, ".local/lib/python"+z.version+"/site-packages")); err == nil {
				return "packages below the home directory"
			}
		}
	}
	return ""
}

// mostEntries bounds the scan of a program's directory.
const mostEntries = 4096

// shadowed returns a reason if the program's directory, which is searched for modules first, has an
// entry with the name of a loaded module.
func (z *zygote) shadowed(dir string) string {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "a directory that can't be read"
	}
	d := os.NewFile(uintptr(fd), dir)
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(mostEntries + 1)
	if len(names) > mostEntries {
		return "too many files in the program's directory"
	}
	for _, name := range names {
		module, _, _ := strings.Cut(name, ".")
		if z.modules[module] {
			return "the file " + shorten(name) + " in the program's directory, whose name is a loaded module's"
		}
	}
	return ""
}
