package access

import (
	"maps"
	"slices"
)

// An Operation is an operation of a caller, named like the API's field.
type Operation string

// anyRight is for operations that every grant allows.
var anyRight = []Right{Watch, Stdin, Cancel, FilesRead, FilesWrite, Execute}

// rules are the rules of all operations. An operation without a rule can't be used: see RuleOf.
var rules = map[Operation]Rule{
	// Reading.
	"version":          {Role: Observer, Rights: anyRight},
	"me":               {Role: Observer, Rights: anyRight},
	"health":           {Role: Observer},
	"environments":     {Role: Observer},
	"environment":      {Role: Observer},
	"languages":        {Role: Observer},
	"poolAlerts":       {Role: Observer},
	"poolAlertHistory": {Role: Observer},
	"activity":         {Role: Observer},
	"poolStatus":       {Role: Observer},
	"runners":          {Role: Observer},
	"runner":           {Role: Observer, Rights: anyRight},
	"runnerEvents":     {Role: Observer},
	"files":            {Role: Observer, Rights: []Right{FilesRead}},
	"file":             {Role: Observer, Rights: []Right{FilesRead}},
	"searchFiles":      {Role: Observer, Rights: []Right{FilesRead}},
	"fileChanges":      {Role: Observer, Rights: []Right{FilesRead}},
	"taskEvents":       {Role: Observer},
	"executions":       {Role: Observer},
	"execution":        {Role: Observer, Rights: []Right{Watch, Stdin, Cancel, Execute}},
	"executionEvents":  {Role: Observer, Rights: []Right{Watch}},
	"output":           {Role: Observer, Rights: []Right{Watch}},
	"batches":          {Role: Observer},
	"batch":            {Role: Observer, Rights: []Right{Watch, Cancel, Execute}},
	"batchEvents":      {Role: Observer, Rights: []Right{Watch}},
	"tenants":          {Role: Observer},
	"waitingClaims":    {Role: Observer},
	"cluster":          {Role: Observer, AllTenants: true},

	// Using runners.
	"claimRunner":     {Role: Client},
	"ticket":          {Role: Client},
	"ticketEvents":    {Role: Client},
	"cancelTicket":    {Role: Client},
	"renewRunner":     {Role: Client, Rights: []Right{Execute}},
	"releaseRunner":   {Role: Client},
	"updateFiles":     {Role: Client, Rights: []Right{FilesWrite}},
	"moveFile":        {Role: Client, Rights: []Right{FilesWrite}},
	"uploadFile":      {Role: Client, Rights: []Right{FilesWrite}},
	"startExecution":  {Role: Client, Rights: []Right{Execute}},
	"renewLease":      {Role: Client, Rights: []Right{Execute}},
	"writeStdin":      {Role: Client, Rights: []Right{Stdin}},
	"resizeTerminal":  {Role: Client, Rights: []Right{Stdin}},
	"signalExecution": {Role: Client, Rights: []Right{Cancel}},
	"cancelExecution": {Role: Client, Rights: []Right{Cancel}},
	"cancelBatch":     {Role: Client, Rights: []Right{Cancel}},
	"run":             {Role: Client},
	"createGrant":     {Role: Client},

	// Changing the server's objects.
	"putEnvironment":    {Role: Operator},
	"deleteEnvironment": {Role: Operator},
	"drainCluster":      {Role: Operator, AllTenants: true},

	// Managing callers.
	"tokens":       {Role: Admin},
	"createToken":  {Role: Admin},
	"revokeToken":  {Role: Admin},
	"auditLog":     {Role: Admin},
	"putTenant":    {Role: Admin, AllTenants: true},
	"deleteTenant": {Role: Admin, AllTenants: true},
	"metrics":      {Role: Observer, AllTenants: true},
}

// RuleOf returns the rule of an operation, and false if it has none and so nobody may use it.
func RuleOf(op Operation) (Rule, bool) {
	rule, ok := rules[op]
	return rule, ok
}

// Operations returns all operations with a rule, sorted.
func Operations() []Operation { return slices.Sorted(maps.Keys(rules)) }
