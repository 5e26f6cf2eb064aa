package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/config/quantity"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/language"
)

// Default returns the default settings.
func Default() Config {
	var c Config
	parser, err := kong.New(&c, quantity.Flags())
	if err != nil {
		panic(err) // a tag of Config is wrong
	}
	for _, flag := range parser.Model.Flags {
		flag.Tag.Envs = nil
	}
	if _, err := parser.Parse(nil); err != nil {
		panic(err)
	}
	return c
}

// Read returns the checked settings of rockpool serve from the variables and a file. Before the check it calls
// change, where given reports whether a variable or the file has a setting. File is as in [ReadFile]; "" means
// $ROCKPOOL_CONFIG, if that is set.
func Read(file string, change func(c *Config, given func(name string) bool)) (Config, error) {
	var c Config
	parser, err := kong.New(&c, quantity.Flags())
	if err != nil {
		return Config{}, err
	}
	if file == "" {
		file = os.Getenv("ROCKPOOL_CONFIG")
	}
	settings, err := ReadFile(file, parser.Model.Flags)
	if err != nil {
		return Config{}, err
	}
	if err := kong.Resolvers(settings).Apply(parser); err != nil {
		return Config{}, err
	}
	selected, err := parser.Parse(nil)
	if err != nil {
		return Config{}, err
	}
	change(&c, func(name string) bool {
		_, set := os.LookupEnv("ROCKPOOL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		_, inFile := settings.values[name]
		return set || inFile
	})
	err = c.Check()
	if wrong, ok := errors.AsType[*Error](err); ok {
		err = wrong.At(selected, settings)
	}
	return c, err
}

// Private returns the settings of a server that one process starts for itself: the settings of rockpool serve,
// without those for a server that others use.
func Private(file string) (Config, error) {
	return Read(file, func(c *Config, given func(name string) bool) {
		c.Listen, c.DebugAddress, c.OnStop = "127.0.0.1:0", "", StopRemoves
		c.TokenFile, c.Cluster, c.AdvertiseURL, c.Database, c.Nomad = "", ClusterLocal, "", "", Nomad{}
		c.OIDC = OIDC{}
		c.TLS, c.Proxies, c.AccessLog = Default().TLS, Proxies{}, AccessLogOff
		c.AuditLog = AccessLogOff
		c.SandboxHelper = "" // it serves the installed server only
		if !uids.Root() {
			c.AcceptMissing = true // the missing limits are reported, and the user runs their own program
		}
		if !given("log-level") {
			c.LogLevel = "error" // the user wants to see the program's output
		}
	})
}

// An Error is a setting with an invalid value.
type Error struct {
	Flag    string // without dashes
	Value   string
	Allowed string
}

func (e *Error) Error() string {
	return fmt.Sprintf("--%s is %q, but must be %s", e.Flag, e.Value, e.Allowed)
}

// At returns an error that names where the value is from: the flag, the variable, or the file's line.
func (e *Error) At(selected *kong.Context, file File) error {
	source := "the default of --" + e.Flag
	variable := "ROCKPOOL_" + strings.ToUpper(strings.ReplaceAll(e.Flag, "-", "_"))
	if s, set := file.values[e.Flag]; set {
		source = fmt.Sprintf("%s:%d: %s", file.Path, s.line, e.Flag)
	}
	if _, set := os.LookupEnv(variable); set {
		source = variable
	}
	for _, part := range selected.Path {
		if part.Flag != nil && part.Flag.Name == e.Flag && !part.Resolved {
			source = "--" + e.Flag
		}
	}
	return fmt.Errorf("%s is %q, but must be %s", source, e.Value, e.Allowed)
}

// readLanguages reads the recipes of the languages.
func (c *Config) readLanguages() (err error) {
	if c.Languages == "" {
		c.Recipes = language.Default()
		return nil
	}
	c.Recipes, err = language.Load(c.Languages)
	if wrong, ok := errors.AsType[*language.Error](err); ok {
		return &Error{"languages", c.Languages, "a file of languages: " + wrong.InFile()}
	}
	return err
}
