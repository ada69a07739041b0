// Package merchants owns the way of a Merchant to the data plane: its published ConfigMap, the secret
// its events are signed with, its status and its end. The way back, repair of what somebody else did
// to them, is the same.
package merchants
