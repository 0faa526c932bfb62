"""What a cluster may be asked for: which fields do something, which versions follow each other, what a configuration
may say. Shared by the admission of RKEControlPlanes and of the Clusters they are made from. Pure."""
