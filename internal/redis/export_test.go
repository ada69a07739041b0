package redis

// Callers returns how many wait for a primary of a Redis Cluster: those sent alone, those in batches, and those in the queue.
func Callers(c *Client, address string) int {
	c.cluster.mu.RLock()
	pipeline := c.cluster.pipelines[address]
	c.cluster.mu.RUnlock()
	pipeline.mu.Lock()
	defer pipeline.mu.Unlock()
	count := len(pipeline.queue) + pipeline.inFlight - len(pipeline.batches)
	for _, b := range pipeline.batches {
		count += len(b.jobs)
	}
	return count
}
