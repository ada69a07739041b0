// Package queue shares the attempts of a dispatcher among merchants, so that the events of a slow or dead endpoint take neither places nor
// time of others. Events that find no room here stay in Redis, where any free dispatcher takes them.
package queue
