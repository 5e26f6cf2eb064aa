package files

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// defaultPath is searched for a command whose environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// WorkingDirectory returns the directory to start a command in.
func (f *Files) WorkingDirectory(dir string) (string, error) {
	at := f.absolute(dir)
	var stat unix.Stat_t
	if err := unix.Stat(at, &stat); err != nil {
		return "", inField("dir", pathError(dir, err))
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", inField("dir", &agent.Error{Code: agent.ErrWrongType, Path: dir, Message: "not a directory"})
	}
	return at, nil
}

// LookUp returns the files that a command's name may mean, best first. A name with a slash means
// itself; it is relative to dir, as it is for the exec.
func (f *Files) LookUp(name, dir string, env []string) ([]string, error) {
	places, isPath := []string{""}, strings.Contains(name, "/")
	if !isPath {
		places = strings.Split(searchPath(env), ":")
	}
	var found []string
	failure := &agent.Error{Code: agent.ErrNotFound, Field: "argv", Path: name, Message: "command not found"}
	for _, place := range places {
		file := name
		if !isPath {
			if place == "" {
				place = "." // by POSIX
			}
			file = place + "/" + name
		}
		at := file
		if !path.IsAbs(file) {
			at = dir + "/" + file
		}
		var stat unix.Stat_t
		err := unix.Stat(at, &stat)
		switch {
		case err != nil:
			if isPath || err == unix.EACCES {
				failure = inField("argv", pathError(name, err))
			}
		case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
			if isPath {
				failure = &agent.Error{Code: agent.ErrWrongType, Field: "argv", Path: name, Message: "a directory, not a command"}
			}
		case stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Mode&0o111 == 0:
			failure = &agent.Error{Code: agent.ErrDenied, Field: "argv", Path: name, Message: "not executable"}
		default:
			found = append(found, file)
		}
	}
	if len(found) == 0 {
		return nil, failure
	}
	return found, nil
}

// searchPath returns the last PATH in env, which is the one that counts.
func searchPath(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return value
		}
	}
	return defaultPath
}

func inField(field string, e *agent.Error) *agent.Error {
	e.Field = field
	return e
}
