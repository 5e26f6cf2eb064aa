package executor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// withVariables returns a command's variables with those of variables that it lacks.
func withVariables(env, variables []string) []string {
	env = slices.Clip(env) // it may be another command's, too
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		if !slices.ContainsFunc(env, func(set string) bool { return strings.HasPrefix(set, name+"=") }) {
			env = append(env, variable)
		}
	}
	return env
}

// ofCaches returns the variables of the caches in dir; see [agent.Caches]. An image's author may put anything there.
func ofCaches(dir string) (variables []string) {
	files, _ := filepath.Glob(dir + "/*" + agent.CacheVariables)
	for _, name := range files {
		file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			text, _ := io.ReadAll(io.LimitReader(file, maxVariables))
			variables = append(variables, ofCache.FindAllString(string(text), -1)...)
		}
		_ = file.Close()
	}
	return variables
}

const maxVariables = 64 << 10 // bytes of a cache's variables

// ofCache matches a variable in a line.
var ofCache = regexp.MustCompile(`(?m)^[A-Za-z_][A-Za-z0-9_]*=[^\x00\n]*$`)

// ofThreads returns variables for the number of the runner's processors. Without them, Go, OpenMP and nproc would use
// as many threads as the machine has processors, because a runner may run on all.
func ofThreads() []string {
	const online = "/sys/devices/system/cpu/online"
	var usable unix.CPUSet
	text, _ := os.ReadFile(online)
	list := strings.TrimSpace(string(text))
	last, err := strconv.Atoi(list[strings.LastIndexAny(list, "-,")+1:])
	if err != nil || unix.SchedGetaffinity(0, &usable) != nil || last+1 >= usable.Count() {
		return nil
	}
	return []string{fmt.Sprint("GOMAXPROCS=", last+1), fmt.Sprint("OMP_NUM_THREADS=", last+1)}
}
