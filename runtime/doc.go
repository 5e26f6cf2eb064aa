// Package runtime is Rockpool's vocabulary: environments, runners, claims and
// executions, the typed error that every layer speaks, and [Cluster], the one
// contract that what is above it has with the place where runners live.
//
// The package holds data, checks it, and moves it between states; it starts
// nothing and stores nothing. Its values are safe to copy, and to read from
// many goroutines as long as nobody writes to them.
package runtime
