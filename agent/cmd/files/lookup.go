package files

import (
	"cmp"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// WorkingDirectory returns the absolute path of the directory in which a command starts.
func (f *Files) WorkingDirectory(dir string) (string, error) {
	l, e := f.locate(cmp.Or(dir, "."))
	if e != nil {
		return "", inField("dir", e)
	}
	var stat unix.Stat_t
	if err := unix.Stat(l.at, &stat); err != nil {
		return "", inField("dir", pathError(dir, err))
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", inField("dir", &agent.Error{Code: agent.ErrWrongType, Path: dir, Message: "isn't a directory"})
	}
	return l.at, nil
}

// LookUp returns the executable files for a command's name, in the order of PATH. A name with a
// slash is a path relative to dir, as for exec. The error is for the client.
func (f *Files) LookUp(name, dir string, env []string) ([]string, error) {
	dirs, isPath := []string{""}, strings.Contains(name, "/")
	if !isPath {
		dirs = strings.Split(searchPath(env), ":")
	}
	var found []string
	failure := &agent.Error{Code: agent.ErrNotFound, Field: "argv", Path: name, Message: "command not found"}
	for _, in := range dirs {
		file := name
		if !isPath {
			if in == "" {
				in = "." // as in POSIX
			}
			file = in + "/" + name
		}
		at := file
		if !path.IsAbs(file) {
			at = dir + "/" + file
		}
		var stat unix.Stat_t
		err := unix.Stat(at, &stat)
		switch {
		// A name that is missing in one directory of PATH may be in another.
		case err != nil:
			if isPath || err == unix.EACCES {
				failure = inField("argv", pathError(name, err))
			}
		case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
			if isPath {
				failure = &agent.Error{Code: agent.ErrWrongType, Field: "argv", Path: name, Message: "is a directory, not a command"}
			}
		case stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Mode&0o111 == 0:
			failure = &agent.Error{Code: agent.ErrDenied, Field: "argv", Path: name, Message: "isn't executable"}
		default:
			found = append(found, file)
		}
	}
	if len(found) == 0 {
		return nil, failure
	}
	return found, nil
}

// searchPath returns the value of the last PATH in env, which is the effective one.
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
