// Package merchants owns the way of a Merchant to the data plane: its published ConfigMap, its
// status and its end. The way back, repair of what somebody else did to the ConfigMap, is the same.
package merchants
