package image

import (
	"path"
	"strings"

	"github.com/rockpool/rockpool/local/image/fault"
	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// pin returns what an environment's revision keeps of an image. covered are the
// directories that runners have of their own.
func (s *source) pin(home string, covered []string) (runtime.ImagePin, error) {
	config := s.config.Config
	p := runtime.ImagePin{Digest: s.digest, User: tree.UserName(config.User)}
	total := 0
	for _, v := range config.Env {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.ContainsRune(v, 0) {
			continue
		}
		total += len(v)
		p.Variables = append(p.Variables, runtime.Variable{Name: name, Value: value})
	}
	if len(p.Variables) > runtime.MaxVariables || total > maxVariables {
		return p, fault.TooLarge("its environment has %d variables of %d bytes; %d of %d are allowed", len(p.Variables), total, runtime.MaxVariables, maxVariables)
	}
	p.WorkingDirectory = workingDirectory(config.WorkingDir, append(covered, home))
	return p, nil
}

// maxVariables is how many bytes an image's variables may have: they are stored
// with every runner.
const maxVariables = 32 << 10

// workingDirectory returns that of an image; "" where it has none of its own, or
// one that can't be seen in a runner.
func workingDirectory(dir string, covered []string) string {
	dir = path.Clean("/" + dir)
	if dir == "/" || len(dir) > 1024 || strings.ContainsRune(dir, 0) {
		return ""
	}
	for _, c := range covered {
		if dir == c || strings.HasPrefix(dir, c+"/") {
			return ""
		}
	}
	return dir
}
