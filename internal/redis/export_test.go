package redis

// Callers returns how many wait for a primary of a Redis Cluster to answer: the leaders of batches, and those that wait for one.
func Callers(c *Client, address string) int {
	c.cluster.mu.RLock()
	pipeline := c.cluster.pipelines[address]
	c.cluster.mu.RUnlock()
	pipeline.mu.Lock()
	defer pipeline.mu.Unlock()
	return len(pipeline.waiting) + pipeline.inFlight
}
