package image

import (
	"path"
	"strings"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// pin returns the properties of an image that an environment's revision stores. covered are the
// directories that runners mount over.
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
		return p, tree.TooLarge("it has %d variables of %d bytes in all; at most %d of %d bytes are allowed", len(p.Variables), total, runtime.MaxVariables, maxVariables)
	}
	p.WorkingDirectory = workingDirectory(config.WorkingDir, append(covered, home))
	return p, nil
}

// maxVariables bounds the bytes of an image's variables, because they are stored with every runner.
const maxVariables = 32 << 10

// workingDirectory returns an image's working directory, if it has one that runners can see.
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
