// Package runtime defines Rockpool's vocabulary: environments, runners, claims and executions, the
// typed [Error] of every layer, and [Cluster], the one contract with the place where runners live.
//
// The package holds and checks data and moves it between states. It starts nothing and stores
// nothing. Its values may be copied, and read concurrently while nothing writes to them.
package runtime
