package main

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// defaultPath is searched for a command whose environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// workingDirectory returns the directory to start a command in.
func (h *host) workingDirectory(dir string) (string, error) {
	at := h.absolute(dir)
	var stat unix.Stat_t
	if err := unix.Stat(at, &stat); err != nil {
		return "", inField("dir", pathError(dir, err))
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", inField("dir", &agent.Error{Code: agent.ErrWrongType, Path: dir, Message: "not a directory"})
	}
	return at, nil
}

// lookUp returns the files that a command's name may mean, best first. A name
// with a slash means itself; it is relative to dir, as it is for the exec.
func (h *host) lookUp(name, dir string, env []string) ([]string, error) {
	places := []string{""}
	if !strings.Contains(name, "/") {
		places = strings.Split(searchPath(env), ":")
	}
	var found []string
	failure := &agent.Error{Code: agent.ErrNotFound, Field: "argv", Path: name, Message: "command not found"}
	for i, place := range places {
		file := name
		if len(places) > 1 || !strings.Contains(name, "/") {
			if place == "" {
				place = "." // as POSIX has it
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
			if len(places) == 1 || err == unix.EACCES {
				failure = inField("argv", pathError(name, err))
			}
		case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
			if i == 0 && len(places) == 1 {
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

// execError tells why a file that was looked up could not be executed.
func execError(name string, err error) *agent.Error {
	e := &agent.Error{Field: "argv", Path: name}
	switch err {
	case unix.EACCES, unix.EPERM:
		e.Code, e.Message = agent.ErrDenied, "may not be executed"
	case unix.ENOENT, unix.ENOTDIR:
		e.Code, e.Message = agent.ErrNotFound, "the interpreter that it names isn't there"
	case unix.ENOEXEC, unix.ELIBBAD:
		e.Code, e.Message = agent.ErrWrongType, "no program for this machine, and no #! in its first line"
	case unix.E2BIG:
		e.Code, e.Message = agent.ErrInvalid, "the arguments and the environment are too long for the kernel"
	case unix.EAGAIN, unix.ENOMEM:
		e.Code, e.Message = agent.ErrTooMany, "the runner has no room for another process"
	case unix.ETXTBSY:
		e.Code, e.Message = agent.ErrDenied, "is being written"
	default:
		e.Code, e.Message = agent.ErrInternal, "could not be executed: "+err.Error()
	}
	return e
}

func inField(field string, e *agent.Error) *agent.Error {
	e.Field = field
	return e
}
