package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// An Error is a setting with an invalid value.
type Error struct {
	Flag    string // without dashes
	Value   string
	Allowed string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("--%s is %q, but must be %s", e.Flag, e.Value, e.Allowed)
}

// At returns an error that names where the value is from: the flag, the variable, or the file's line.
func (e *Error) At(selected *kong.Context, file File) error {
	place := "the default of --" + e.Flag
	variable := "ROCKPOOL_" + strings.ToUpper(strings.ReplaceAll(e.Flag, "-", "_"))
	if s, set := file.values[e.Flag]; set {
		place = fmt.Sprintf("%s:%d: %s", file.Path, s.line, e.Flag)
	}
	if _, set := os.LookupEnv(variable); set {
		place = variable
	}
	for _, part := range selected.Path {
		if part.Flag != nil && part.Flag.Name == e.Flag && !part.Resolved {
			place = "--" + e.Flag
		}
	}
	return fmt.Errorf("%s is %q, but must be %s", place, e.Value, e.Allowed)
}
