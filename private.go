package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime/engine"
)

// usePrivate is cli.Private's: a server that has one of the first environments
// and keeps no runner of it warm, since one is all that is asked for.
func usePrivate(ctx context.Context, environment string, s cli.Streams, use func(ctx context.Context, server *client.Client) error) error {
	input, err := privateEnvironment(environment)
	if err != nil {
		return err
	}
	config, err := privateConfig("")
	if err != nil {
		return err
	}
	logger, err := config.logger()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Err, "rockpool: no server listens at %s: starting one for this run alone\n", cli.DefaultServer)
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, "rockpool: "+format+"\n", args...) }
	var used error
	err = runPrivate(ctx, config, logger, say, func(ctx context.Context, server *Server) error {
		if lost := server.lost(); lost != "" {
			say("%s", lost)
		}
		if _, _, err := server.Engine.PutEnvironment(ctx, input); err != nil {
			return err
		}
		reached := server.Client()
		defer reached.CloseIdle()
		used = use(ctx, reached)
		return nil
	})
	if ctx.Err() != nil && used == nil {
		return cli.ExitError(cli.CodeInterrupted)
	}
	var exit cli.ExitError
	if errors.As(used, &exit) && err != nil {
		_, _ = fmt.Fprintf(s.Err, "rockpool: end the server of this run: %v\n", err)
		return exit
	}
	return errors.Join(used, err)
}

func privateEnvironment(id string) (engine.PutEnvironmentInput, error) {
	var names []string
	for _, s := range starters() {
		if !s.there() {
			continue
		}
		if string(s.id) == id {
			input := s.input()
			none := 0
			input.PoolSize = &none
			return input, nil
		}
		names = append(names, string(s.id))
	}
	return engine.PutEnvironmentInput{}, fmt.Errorf("no server listens at %s, and one for this run alone has no environment %q, only %q: start one with `rockpool serve` and put it there", cli.DefaultServer, id, names)
}

// privateConfig returns the settings of a private server: those of rockpool
// serve, from variables and the settings file, as far as they aren't about a
// server that others use. File is "" if nobody named one.
func privateConfig(file string) (Config, error) {
	return readConfig(file, func(config *Config, given func(name string) bool) {
		config.Listen, config.DebugAddress, config.OnStop = "127.0.0.1:0", "", stopRemoves
		config.TokenFile, config.Cluster, config.AdvertiseURL, config.Nomad = "", clusterLocal, "", NomadConfig{}
		config.SandboxHelper = "" // it is root's
		if os.Geteuid() != 0 {
			config.AcceptMissing = true // it is told, and the program is that of who runs it
		}
		if !given("log-level") {
			config.LogLevel = "error" // the program's own output is what its user wants to see
		}
	})
}

// readConfig returns the settings of rockpool serve, from variables and the
// settings file, after change, which learns what was given.
func readConfig(file string, change func(config *Config, given func(name string) bool)) (Config, error) {
	var config Config
	parser, err := kong.New(&config)
	if err != nil {
		return Config{}, err
	}
	if file == "" {
		file = os.Getenv("ROCKPOOL_CONFIG")
	}
	settings, err := readSettings(file, parser.Model.Flags)
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
	change(&config, func(name string) bool {
		_, set := os.LookupEnv("ROCKPOOL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		_, inFile := settings.values[name]
		return set || inFile
	})
	err = config.Check()
	var wrong *settingError
	if errors.As(err, &wrong) {
		err = wrong.at(selected, settings)
	}
	return config, err
}

// runPrivate runs a server with a directory of its own while use runs, and
// leaves nothing of it; or else it says what it leaves, with say. The context
// of use ends with ctx, and if the server ends before.
func runPrivate(ctx context.Context, config Config, logger *zap.Logger, say sayer, use func(ctx context.Context, server *Server) error) (err error) {
	nest, err := makeNest(ctx, config, say)
	if err != nil {
		return err
	}
	clean := false
	defer func() { nest.remove(context.WithoutCancel(ctx), clean, say) }()
	server := NewServer(nest.config, logger)
	server.socket = nest.socket()
	if err := server.Open(ctx); err != nil {
		return err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // it ends after use, which has to clean up
	using, endUse := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := server.Run(serving)
		endUse(err)
		ended <- err
	}()
	defer func() {
		end()
		failed := <-ended
		clean = failed == nil
		err = errors.Join(err, failed)
	}()
	select {
	case <-server.Engine.Restored():
	case <-using.Done():
		return context.Cause(using)
	}
	return use(using, server)
}

// A sayer tells the user something, in one line.
type sayer func(format string, args ...any)
