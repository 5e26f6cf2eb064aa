package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/runtime/access"
)

// An operation is a field of the schema's root types, or of a type below, with what the table needs
// to call it.
type operation struct {
	name   string
	kind   ast.Operation
	rules  []access.Operation
	about  string             // the kind of its object; "" means it has none
	args   func(o *things) in // by name
	answer string             // the selection; "" means it returns a scalar
	spends bool               // it changes the object, so that it can't be called again
	taken  bool               // the id of another tenant's object is CONFLICT, since all tenants share the ids
	forms  bool               // it needs a multipart request
	wrong  bool               // the input is invalid for any object
}

func id(of func(o *things) string) func(o *things) in {
	return func(o *things) in { return in{"id": of(o)} }
}

func input(of func(o *things) in) func(o *things) in {
	return func(o *things) in { return in{"input": of(o)} }
}

func environmentOf(o *things) string { return o.environment }
func lowOf(o *things) string         { return o.low }
func runnerOf(o *things) string      { return o.runner }
func executionOf(o *things) string   { return o.execution }
func batchOf(o *things) string       { return o.batch }
func ticketOf(o *things) string      { return o.ticket }

func named(name string, of func(o *things) string) func(o *things) in {
	return func(o *things) in { return in{name: of(o)} }
}

// known are the operations that the table can call, by the schema's names.
var known = map[string]operation{
	"Query.version":          {},
	"Query.me":               {answer: "{ name tenant role }"},
	"Query.health":           {answer: "{ status }"},
	"Query.cluster":          {answer: "{ kind }"},
	"Query.waitingClaims":    {about: "environment", args: named("environmentId", lowOf), answer: "{ nodes { tenant position } totalCount }"},
	"Query.auditLog":         {answer: "{ nodes { id } }"},
	"Query.tokens":           {answer: "{ id }"},
	"Query.tenants":          {answer: "{ id }"},
	"Query.environments":     {answer: "{ id }"},
	"Query.languages":        {answer: "{ id }"},
	"Query.poolAlerts":       {answer: "{ environmentId }"},
	"Query.poolAlertHistory": {answer: "{ environmentId }"},
	"Query.activity":         {answer: "{ executionsRunning }"},
	"Query.environment":      {about: "environment", args: id(environmentOf), answer: "{ id tenant }"},
	"Query.runners":          {about: "environment", args: named("environmentId", environmentOf), answer: "{ nodes { id } totalCount }"},
	"Query.runner":           {about: "runner", args: id(runnerOf), answer: "{ id }"},
	"Query.executions":       {about: "runner", args: named("runnerId", runnerOf), answer: "{ nodes { id } totalCount }"},
	"Query.execution":        {about: "execution", args: id(executionOf), answer: "{ id }"},
	"Query.batches":          {about: "runner", args: named("runnerId", runnerOf), answer: "{ nodes { id } totalCount }"},
	"Query.ticket":           {about: "ticket", args: id(ticketOf), answer: "{ environmentId }"},
	"Query.batch":            {about: "batch", args: id(batchOf), answer: "{ id cases { nodes { execution { id } } } }"},

	"Mutation.putEnvironment":    {about: "environment", taken: true, answer: "{ created }", args: input(func(o *things) in { return in{"id": o.environment} })},
	"Mutation.deleteEnvironment": {about: "environment", spends: true, answer: "{ deleted }", args: input(func(o *things) in { return in{"id": o.environment, "endClaimed": true} })},
	"Mutation.claimRunner":       {about: "environment", answer: "{ runner { tenant } }", args: input(func(o *things) in { return in{"environmentId": o.environment, "waitFor": 60} })},
	"Mutation.run": {about: "environment", answer: "{ execution { tenant } }", args: input(func(o *things) in {
		return in{"environmentId": o.environment, "waitFor": 60, "command": []string{"true"}}
	})},
	"Mutation.renewRunner":     {about: "runner", args: id(runnerOf), answer: "{ runner { id } }"},
	"Mutation.releaseRunner":   {about: "runner", spends: true, args: id(runnerOf), answer: "{ released }"},
	"Mutation.updateFiles":     {about: "runner", answer: "{ written }", args: input(func(o *things) in { return in{"runnerId": o.runner, "write": []in{{"path": "b.txt", "text": "b"}}} })},
	"Mutation.moveFile":        {about: "runner", answer: "{ file { path } }", args: input(func(o *things) in { return in{"runnerId": o.runner, "from": "b.txt", "to": "d.txt"} })},
	"Mutation.uploadFile":      {about: "runner", forms: true, answer: "{ file { path } }", args: func(o *things) in { return in{"runnerId": o.runner, "path": "c.txt", "file": nil} }},
	"Mutation.startExecution":  {about: "runner", answer: "{ execution { state } }", args: input(func(o *things) in { return in{"runnerId": o.runner, "command": []string{"true"}} })},
	"Mutation.renewLease":      {about: "execution", args: id(executionOf), answer: "{ renewed }"},
	"Mutation.writeStdin":      {about: "execution", answer: "{ offset }", args: input(func(o *things) in { return in{"executionId": o.execution, "text": "x", "offset": "0"} })},
	"Mutation.resizeTerminal":  {about: "execution", answer: "{ execution { id } }", args: input(func(o *things) in { return in{"executionId": o.execution, "columns": 9, "rows": 9} })},
	"Mutation.signalExecution": {about: "execution", answer: "{ execution { id } }", args: input(func(o *things) in { return in{"executionId": o.execution, "signal": "WINCH"} })},
	"Mutation.cancelExecution": {about: "execution", args: id(executionOf), answer: "{ execution { id } }"},
	"Mutation.cancelTicket":    {about: "ticket", args: id(ticketOf), answer: "{ ticket { environmentId } }"},
	"Mutation.cancelBatch":     {about: "batch", args: id(batchOf), answer: "{ batch { id } }"},
	"Mutation.createGrant":     {about: "execution", answer: "{ token }", args: input(func(o *things) in { return in{"executionId": o.execution, "rights": []string{"WATCH"}} })},
	"Mutation.createToken":     {about: "tenant", answer: "{ secret }", args: input(func(o *things) in { return in{"name": "t", "role": "OBSERVER", "tenant": o.tenantName} })},
	"Mutation.revokeToken":     {about: "token", args: func(o *things) in { return in{"id": o.token} }, answer: "{ token { id } }"},
	"Mutation.putTenant":       {about: "tenant", answer: "{ created }", args: input(func(o *things) in { return in{"id": o.tenantName} })},
	"Mutation.deleteTenant":    {about: "tenant", answer: "{ deleted }", args: func(o *things) in { return in{"id": o.tenantName} }}, // it has environments: CONFLICT
	"Mutation.drainCluster":    {answer: "{ cluster { kind } }", args: input(func(*things) in { return in{"draining": false} })},

	"Subscription.executionEvents": {about: "execution", args: named("executionId", executionOf), answer: "{ __typename }"},
	"Subscription.fileChanges":     {about: "runner", args: named("runnerId", runnerOf), answer: "{ type path }"},
	"Subscription.ticketEvents":    {about: "ticket", args: id(ticketOf), answer: "{ environmentId }"},
	"Subscription.batchEvents":     {about: "batch", args: named("batchId", batchOf), answer: "{ __typename }"},
	"Subscription.poolAlerts":      {about: "environment", args: named("environmentId", lowOf), answer: "{ environmentId }"},
	"Subscription.poolStatus":      {about: "environment", args: named("environmentId", environmentOf), answer: "{ environmentId }"},
	"Subscription.runnerEvents":    {about: "environment", args: named("environmentId", environmentOf), answer: "{ runner { environmentId } }"},
}

// below are the fields with a rule of their own. The rule of the operation that leads to them
// applies too.
var below = []operation{
	{name: "Query.runner files", rules: ops("runner", "files"), about: "runner", args: id(runnerOf), answer: "{ files { nodes { path } } }"},
	{name: "Query.runner file", rules: ops("runner", "file"), about: "runner", args: id(runnerOf), answer: `{ file(path: "a.txt") { path downloadUrl } }`},
	{name: "Query.runner searchFiles", rules: ops("runner", "searchFiles"), about: "runner", args: id(runnerOf), answer: `{ searchFiles(name: "*") { matches { file { path } } } }`},
	{name: "Query.runner events", rules: ops("runner", "taskEvents"), about: "runner", args: id(runnerOf), answer: "{ events { kind } }"},
	{name: "Query.execution output", rules: ops("execution", "output"), about: "execution", args: id(executionOf), answer: "{ output { end } outputUrl }"},
	{name: "Query.execution lines", rules: ops("execution", "output"), about: "execution", args: id(executionOf), answer: "{ lines { total } }"},
	{name: "Query.execution runner", rules: ops("execution", "runner"), about: "execution", args: id(executionOf), answer: "{ id runner { id } }"},
	{name: "Query.cluster evaluations", rules: ops("cluster"), answer: "{ evaluations { totalCount } allocations { totalCount } }"},
	{name: "Query.cluster taskEvents", rules: ops("cluster", "taskEvents"), answer: `{ taskEvents(runnerId: "x") { kind } }`},
}

// alsoAsked are operations that the table calls again: for another object, or with an input that is
// checked before the object.
var alsoAsked = []operation{
	{name: "Mutation.createGrant for a runner", rules: ops("createGrant"), about: "runner", answer: "{ token }", args: input(func(o *things) in { return in{"runnerId": o.runner, "rights": []string{"EXECUTE"}} })},
	{name: "Mutation.claimRunner wrongly", rules: ops("claimRunner"), about: "environment", wrong: true, answer: "{ runner { id } }", args: input(func(o *things) in { return in{"environmentId": o.environment, "waitFor": -1} })},
	{name: "Mutation.claimRunner with a used key", rules: ops("claimRunner"), about: "environment", wrong: true, answer: "{ runner { id } }", args: input(func(o *things) in { return in{"environmentId": o.environment, "idempotencyKey": usedKey} })},
	{name: "Mutation.claimRunner for a holder", rules: ops("claimRunner"), about: "environment", answer: "{ runner { tenant } }", args: input(func(o *things) in {
		return in{"environmentId": o.environment, "holder": "h", "waitFor": 60}
	})},
	{name: "Mutation.run wrongly", rules: ops("run"), about: "environment", wrong: true, answer: "{ execution { id } }", args: input(func(o *things) in { return in{"environmentId": o.environment} })},
	{name: "Mutation.run with cases", rules: ops("run"), about: "environment", answer: "{ batch { tenant } }", args: input(func(o *things) in {
		return in{"environmentId": o.environment, "waitFor": 60, "command": []string{"true"}, "cases": []in{{}}}
	})},
	{name: "Mutation.startExecution wrongly", rules: ops("startExecution"), about: "runner", wrong: true, answer: "{ execution { id } }", args: input(func(o *things) in { return in{"runnerId": o.runner} })},
	{name: "Mutation.startExecution with cases", rules: ops("startExecution"), about: "runner", answer: "{ batch { tenant } }", args: input(func(o *things) in {
		return in{"runnerId": o.runner, "command": []string{"true"}, "cases": []in{{}}}
	})},
}

// usedKey is an idempotencyKey that the tenant has used for another environment.
const usedKey = "used"

func ops(names ...access.Operation) []access.Operation { return names }

// operations returns the operations of the schema, below and alsoAsked.
func (w *world) operations() (all []operation) {
	for _, root := range []*ast.Definition{w.schema.Query, w.schema.Mutation, w.schema.Subscription} {
		for _, field := range root.Fields {
			if strings.HasPrefix(field.Name, "__") {
				continue
			}
			name := root.Name + "." + field.Name
			op, ok := known[name]
			if !ok {
				w.t.Errorf("add %s to known", name)
				continue
			}
			op.name, op.rules = name, ops(access.Operation(field.Name))
			all = append(all, op)
		}
	}
	all = append(append(all, below...), alsoAsked...)
	for i, op := range all {
		root, _, _ := strings.Cut(op.name, ".")
		all[i].kind = ast.Operation(strings.ToLower(root))
	}
	// Operations that change their object come last.
	slices.SortStableFunc(all, func(a, b operation) int {
		rank := map[bool]int{true: 1}
		return rank[a.spends] - rank[b.spends]
	})
	return all
}

// transports returns the transports that carry the operation.
func (op operation) transports() []string {
	switch {
	case op.forms:
		return []string{"multipart"}
	case op.kind == ast.Query:
		return []string{"POST", "GET", "SSE", "WebSocket"}
	case op.kind == ast.Subscription:
		return []string{"SSE", "WebSocket"}
	}
	return []string{"POST", "SSE", "WebSocket"}
}

// build returns the document and its variables, with their types from the schema.
func (op operation) build(schema *ast.Schema, o *things) (query string, variables in) {
	root, name, _ := strings.Cut(op.name, ".")
	name, _, _ = strings.Cut(name, " ")
	field := schema.Types[root].Fields.ForName(name)
	var declared, given []string
	if op.args != nil {
		variables = op.args(o)
	}
	for _, argument := range field.Arguments {
		if _, ok := variables[argument.Name]; ok {
			declared = append(declared, fmt.Sprintf("$%s: %s", argument.Name, argument.Type))
			given = append(given, fmt.Sprintf("%s: $%s", argument.Name, argument.Name))
		}
	}
	open, call := "", ""
	if len(declared) > 0 {
		open, call = "("+strings.Join(declared, ", ")+")", "("+strings.Join(given, ", ")+")"
	}
	return fmt.Sprintf("%s%s { %s%s %s }", op.kind, open, name, call, op.answer), variables
}
