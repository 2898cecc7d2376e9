"""Can this endpoint be trusted?"""
