package graph

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	gqlcomplexity "github.com/99designs/gqlgen/complexity"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// boundedLists are the lists that cost as much as one element, with the reason why their length is
// limited.
var boundedLists = map[string]string{
	"Grant.rights": "the 6 rights", "AuditEntry.details": "16", "Warm.modules": "64 names",
	"PoolHistory.idle": "360 numbers", "PoolHistory.claimed": "360 numbers", "PoolHistory.starting": "360 numbers",
	"PoolHistory.waiting": "360 numbers", "PoolHistory.claims": "360 numbers", "PoolHistory.warm": "360 numbers",
	"Network.exposedPorts": "64 numbers", "Network.allow": "64 names", "Network.allowNames": "64 names", "Runner.ports": "as Network.exposedPorts",
	"Cluster.hostInterpreters": "a handful of known programs", "Evaluation.shortages": "one of each dimension", "Execution.command": "4096 arguments of 1 MiB in all, which Execution.command takes",
	"OutputPage.chunks": "maxBytes, which Execution.output takes", "OutputLinePage.lines": "maxLines, which Execution.lines takes",
	"UpdateFilesPayload.written": "the input's", "UpdateFilesPayload.deleted": "the input's", "UpdateFilesPayload.failed": "the input's",
	"Language.aliases": "64", "Language.extensions": "64", "Language.environmentIds": "64", "Language.build": "64 arguments", "Language.run": "64 arguments",
	"Attacks.failed": "the attacks of doctor", "FileSearch.matches": "maxMatches, which Runner.searchFiles takes",
}

// Aliases multiply the cost of a list, so its length must count.
func TestEveryListHasACost(t *testing.T) {
	costs, left := reflect.ValueOf(complexity(language.Default())), maps.Clone(boundedLists)
	for _, d := range ours(schema()) {
		if d.Kind != ast.Object || d.Name == "Subscription" {
			continue
		}
		for _, field := range d.Fields {
			list, page := field.Type.Elem != nil, strings.HasSuffix(field.Type.Name(), "Connection")
			at := d.Name + "." + field.Name
			if strings.HasPrefix(field.Name, "__") || !list && !page || list && strings.HasSuffix(d.Name, "Connection") {
				continue
			}
			cost := costs.FieldByName(d.Name).FieldByName(strings.ToUpper(field.Name[:1]) + field.Name[1:])
			none := !cost.IsValid() || cost.IsNil() // gqlgen.yml may give it another name
			switch _, bounded := left[at]; {
			case !none && bounded:
				t.Errorf("%s has a cost: remove it from boundedLists", at)
			case none && !bounded:
				t.Errorf("%s has no cost in limits.go: give it one, or name its bound in boundedLists", at)
			}
			delete(left, at)
		}
	}
	for at := range left {
		t.Errorf("there is no list %s", at)
	}
}

// twoLanguages returns a set whose languages try up to three environments.
func twoLanguages() *language.Set {
	return language.Of(language.Recipe{ID: "x"}, language.Recipe{ID: "y", Environments: []runtime.EnvironmentID{"a", "b", "c"}})
}

// complexities returns an operation's cost, and the part of it that takes memory.
func complexities(op *ast.OperationDefinition, variables map[string]any) (all, memory int) {
	cost := func(c generated.ComplexityRoot) int {
		return gqlcomplexity.Calculate(context.Background(), generated.NewExecutableSchema(generated.Config{Complexity: c}), op, variables)
	}
	return cost(complexity(twoLanguages())), cost(fields(twoLanguages()))
}

func TestCostsOfOperations(t *testing.T) {
	for query, want := range map[string]struct{ all, memory int }{
		`{ runner(id: "x") { searchFiles(name: "x", maxMatches: 10) { matches { line } } } }`: {20_022, 5_022},
		`{ poolAlertHistory { environmentId since } }`:                                        {201, 201},
		`{ activity { claimsWaiting } }`:                                                      {1001, 2},
		`{ languages { id name } }`:                                                           {1 + 2*2, 1 + 2*2},
		`{ languages { environmentId } }`:                                                     {1 + 2*4, 1 + 2*4},
		`{ languages { version } }`:                                                           {1 + 2*103, 1 + 2*103},
		`{ environments { id } }`:                                                             {200, 200},
		`{ execution(id: "x") { labels { name value } } }`:                                    {1 + 1 + 2*32, 1 + 1 + 2*32},
		`{ runner(id: "x") { claim { labels { name value } } } }`:                             {1 + 1 + 1 + 2*32, 1 + 1 + 1 + 2*32},
		`{ executions(failed: true, first: 10) { totalCount } }`:                              {10_011, 11},
		`{ waitingClaims(first: 10) { totalCount } }`:                                         {1011, 11},
		`{ cluster { allocations(first: 10) { totalCount } } }`:                               {1012, 12},
		`{ cluster { evaluations(first: 10) { totalCount } } }`:                               {1012, 12},
		`{ execution(id: "x") { lines(maxLines: 1) { total } } }`:                             {20_003, 3},
		`{ execution(id: "x") { a: lines { total } b: lines { total } c: lines { total }}}`:   {60_304, 7},
	} {
		document, err := gqlparser.LoadQueryWithRules(schema(), query, rules.NewDefaultRules())
		if err != nil {
			t.Fatal(err)
		}
		if all, memory := complexities(document.Operations[0], nil); all != want.all || memory != want.memory {
			t.Errorf("%s costs %d, and %d of memory; not %d and %d", query, all, memory, want.all, want.memory)
		}
	}
}

// The command line's operations are within the limit, with its page sizes.
func TestCommandLinesOperationsAreWithinTheLimit(t *testing.T) {
	paths, err := filepath.Glob("../client/*.graphql")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	document, errs := gqlparser.LoadQueryWithRules(schema(), all.String(), rules.NewDefaultRules())
	if errs != nil {
		t.Fatal(errs)
	}
	for _, op := range document.Operations {
		variables := map[string]any{"first": int64(1000), "failed": true}
		if op.Name == "GetExecutions" || op.Name == "GetRunners" || op.Name == "GetRunning" { // connection.LabelledPage
			variables["first"] = int64(200)
		}
		if cost, _ := complexities(op, variables); cost > maxComplexity*9/10 {
			t.Errorf("%s costs %d of %d", op.Name, cost, maxComplexity)
		}
	}
}
